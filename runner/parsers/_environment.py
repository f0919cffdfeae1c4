"""What any log may say of the machine it was written on, whatever trained there: one table for all families.

The lines are those of the driver's tools, of NVIDIA's images, of the frameworks and of NCCL. They prove no
family, so they are matched beside the families (``ENVIRONMENT``) and belong to the run that they stand in or
before. Forms::

    | NVIDIA-SMI 450.80.02    Driver Version: 450.80.02    CUDA Version: 11.0     |
    |   0  Tesla V100-SXM2...  On   | 00000000:3F:00.0 Off |                    0 |
    GPU 0: Tesla V100-SXM2-32GB (UUID: GPU-...)            nvidia-smi -L
    NVRM version: NVIDIA UNIX x86_64 Kernel Module  450.80.02  ...
    NVIDIA Release 20.06-tf1 (build 13409399)              the banner of an image
    TensorFlow Version 1.15.2                              likewise; PyTorch, MXNet
    PyTorch version: 1.7.0                                 likewise, of torch.utils.collect_env
    name: Tesla V100-SXM2-32GB major: 7 minor: 0 memoryClockRate(GHz): 1.53            TensorFlow
    ... physical GPU (device: 0, name: Tesla V100-SXM2-32GB, pci bus id: ...           TensorFlow
    ... device: 0, GPU Compute Capability: 7.0, Driver API Version: 11.2, Runtime API Version: 11.2    Paddle
    GPU 0,1: Tesla V100-SXM2-32GB                          mmcv
    ... rank   0: capabilities =  7.0  ; total memory = 31.749 GB ; name = Tesla V100-SXM2-32GB      fairseq
    ... Saving checkpoint at 4000 iterations               what a record after it may have waited for
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from runner.model import Problem
from runner.parsers._engine import Family, Hit, Row
from runner.parsers._nccl import ROWS, WORDS, Said, said

_VERSION = r"\d{1,4}(?:\.\d{1,4}){1,3}"
_GPU = r"\S(?:.{0,80}?\S)?"
_BUS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d"

_ROWS = (
    Row(
        "note",
        rf"(?:\|? ?NVIDIA-SMI \S{{1,20}}\s{{1,40}})?(?:KMD |Driver )Version\s{{0,60}}: (?P<driver>{_VERSION})"
        rf"(?:\s{{1,40}}CUDA (?:UMD )?Version: {{1,9}}(?P<cuda_driver>{_VERSION}|N/A))?(?:\s{{1,40}}\|)?",
    ),
    Row(
        "note",
        rf"\|\s{{1,9}}\d{{1,3}}\s{{1,9}}(?P<gpu>{_GPU})\s{{1,40}}(?:On|Off|N/A)\s{{0,9}}\|\s{{0,9}}{_BUS}"
        r"\s{1,9}(?:On|Off|N/A)\s{0,9}\|.{0,60}",
    ),
    Row("note", rf"GPU \d{{1,3}}: (?P<gpu>{_GPU}) \(UUID: GPU-[\w-]{{1,60}}\)"),
    Row("note", r"GPU \d[\d,]{0,200}: (?P<gpu>[A-Z][\w. +()/-]{1,80})"),
    Row("note", rf".{{0,80}}\brank {{1,9}}\d{{1,6}}: capabilities = .{{1,80}} ; name = (?P<gpu>{_GPU})"),
    Row("note", rf"Product Name\s{{1,60}}: (?P<gpu>{_GPU})"),
    Row(
        "note",
        r"NVRM version: NVIDIA UNIX (?:x86_64|Open|aarch64) Kernel Module (?:for \S{1,20} )?"
        rf" {{0,9}}(?P<driver>{_VERSION})\s.{{0,200}}",
    ),
    Row("note", r"NVIDIA Release (?P<image>\d\d\.\d\d[\w.-]{0,20})(?: \(build \d{1,12}\))?"),
    Row("note", r"(?P<framework>Tensor[Ff]low|PyTorch|MXNet) Version (?P<framework_version>\d[\w.+-]{0,60})"),
    Row("note", r"PyTorch version: (?P<framework_version>\d[\w.+-]{0,60})", means={"framework": "PyTorch"}),
    Row("note", rf"CUDA used to build PyTorch: (?P<cuda>{_VERSION})"),
    Row("note", rf"Nvidia driver version: (?P<driver>{_VERSION})"),
    Row("note", rf"(?:.{{0,200}}\s)?name: (?P<gpu>{_GPU}) (?:major: \d|computeCapability: \d).{{0,200}}"),
    Row(
        "note", rf".{{0,400}}physical GPU \(device: \d{{1,4}}, name: (?P<gpu>{_GPU}), pci bus id: .{{0,200}}"
    ),
    Row(
        "note",
        rf".{{0,200}}StreamExecutor device \(\d{{1,4}}\): (?P<gpu>{_GPU}), Compute Capability \d.{{0,40}}",
    ),
    Row("note", rf".{{0,300}}opened dynamic library libcudart\.so\.(?P<cuda>{_VERSION})"),
    Row(
        "note",
        r".{0,200}device: \d{1,4}, (?:GPU|CUDA) (?:Compute )?Capability: \d.{0,20}?, Driver API Version: "
        rf"(?P<cuda_driver>{_VERSION}), Runtime API Version: (?P<cuda>{_VERSION})",
    ),
    Row("note", rf"- CUDA Runtime (?P<cuda>{_VERSION})"),
    Row("note", r"\{['\"]env_info['\"]: .{0,4000}?\\nGPU \d[\d,]{0,200}: (?P<gpu>[^\\]{1,80})\\n.*"),
    Row("note", r".{0,200}\bSaving checkpoint at \d{1,15} (?:iterations|epochs)", means={"saved": "yes"}),
    Row("note", r".{0,200}\bSaving checkpoints for \S.{0,400}", means={"saved": "yes"}),
    Row("note", r".{0,200}\bAlready save model in \S.{0,400}", means={"saved": "yes"}),
    *ROWS,
)

ENVIRONMENT = Family(
    name="environment",
    framework=None,
    model=None,
    unit="",
    scope="global",
    rule="summary",
    kind="environment",
    words=(
        *("Driver Version", ".0 Off |", ".0  On |", "GPU 0", "GPU 1", "Product Name", "NVRM version"),
        *("KMD Version", "NVIDIA Release ", "ensorFlow Version ", "ensorflow Version ", "PyTorch Version "),
        *("MXNet Version ", "PyTorch version: ", "to build PyTorch", "Nvidia driver version", "major: "),
        *("capabilities = ", "computeCapability: "),
        *("physical GPU", "StreamExecutor device", "libcudart.so", "CUDA Runtime "),
        *("env_info", "Saving checkpoint", "Already save model", "Driver API Version", *WORDS),
    ),
    near="(?!)",
    rows=_ROWS,
)


class Surroundings(NamedTuple):
    """What stands in and before the lines of a run: ``known`` by key of a run, ``facts`` beside it.

    ``saves`` are the numbers of the lines that say that the parameters were saved.
    """

    known: Mapping[str, str]
    facts: Mapping[str, str]
    nccl: Said
    saves: tuple[int, ...]
    problems: tuple[Problem, ...]


def surroundings(hits: Sequence[Hit], framework: str | None) -> Surroundings:
    """Put together the lines of a run of ``framework``. Of each thing the first word holds."""
    known: dict[str, str] = {}
    facts: dict[str, str] = {}
    for hit in hits:
        told = dict(hit.values)
        named = told.pop("framework", framework) or ""
        if named.lower() != (framework or "").lower():
            told.pop("framework_version", None)  # of another program in the image
        _learn(known, told, ("gpu", "driver", "framework_version", "nccl"))
        told["cuda_driver"] = _dotted(told.get("cuda_driver", ""))
        _learn(facts, told, ("image", "cuda", "cuda_driver"))
    saves = tuple(hit.line.number for hit in hits if "saved" in hit.values)
    nccl = said(hits)
    return Surroundings(known, facts, nccl, saves, (*nccl.problems, *_hosts_differ(hits)))


def _hosts_differ(hits: Sequence[Hit]) -> list[Problem]:
    """Say where a run's hosts have other cards, drivers or releases of NCCL than one another."""
    found = []
    for key, title in (("gpu", "GPU"), ("driver", "driver"), ("nccl", "NCCL")):
        told = dict.fromkeys(_plain(hit.values[key]) for hit in hits if key in hit.values)
        whole = [one for one in told if not any(_was_cut(one, other) for other in told)]
        if len(whole) > 1:
            line = next(hit.line.number for hit in hits if _plain(hit.values.get(key, "")) == whole[1])
            found.append(Problem("hosts_differ", line, f"{title}: {' and '.join(whole)} in one run"))
    return found


def _plain(name: str) -> str:
    """Leave out the maker's words, which some programs print and others do not."""
    return name.removeprefix("NVIDIA ").removeprefix("Tesla ")


def _learn(known: dict[str, str], told: Mapping[str, str], keys: Sequence[str]) -> None:
    for key in keys:
        text = told.get(key)
        if text and text != "N/A" and (key not in known or _was_cut(known[key], text)):
            known[key] = text


def _was_cut(earlier: str, text: str) -> bool:
    """Whether ``text`` is the whole of what a narrow table cut off: ``Tesla V100-SXM2...``."""
    return earlier.endswith("...") and not text.endswith("...") and text.startswith(earlier[:-3])


def _dotted(version: str) -> str:
    """``11020``, as CUDA counts, is 11.2."""
    if not version.isdecimal():
        return version
    return f"{int(version) // 1000}.{int(version) % 1000 // 10}"
