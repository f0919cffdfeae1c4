"""The driver: answers of nvidia-smi that look alike and have other remedies, cards of a display, and pins.

What programs print here is no recording: it follows reports from the field, manuals and the formats of the
tools' files.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_hosts import changed, diagnosed, host, recorded, said

from runner import diagnosis
from runner.diagnosis import smi
from runner.diagnosis.model import HostView, Probe

NOT_REACHED = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
    "NVIDIA driver is installed and running.\n\n"
)
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.173\n"
UNKNOWN = "Failed to initialize NVML: Unknown Error\n"
LOADER = (
    "nvidia-smi: error while loading shared libraries: libnvidia-ml.so.1: cannot open shared object file\n"
)
HEAD = recorded("nvidia-smi-q.txt").partition("GPU 0000")[0]
LOST = (
    "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system to recover "
    "this GPU\n"
)
INFOROM = "WARNING: infoROM is corrupted at gpu 0000:00:06.0\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue Jun 23 08:38:17 UTC 2026\n"
OPEN_595 = changed("gpu_module", "580.159.04", "595.71.05")
NOUVEAU = said("nouveau 2334720 4 - Live 0x0\nnvidia 1 1 nvidia_uvm, Live 0x0 (OE)\n")
# Ids by the PCI ID repository.
H100 = recorded("sys-pci.txt")  # the one that the recorded nvidia-smi lists
ADA = "0000:21:00.0 0x030000 0x26b1\n"  # RTX 6000 Ada
P620 = "0000:03:00.0 0x030000 0x1cb6\n"  # Quadro P620
V100, P4 = "0000:15:00.0 0x030200 0x1db5\n", "0000:16:00.0 0x030200 0x1bb3\n"
T400 = "0000:04:00.0 0x030000 0x1ff2\n"  # of Turing
APT = "==> /etc/apt/preferences.d/x <==\nPackage: {}\nPin: version 580.*\nPin-Priority: 1001\n"
LIST = "==> /etc/dnf/plugins/versionlock.conf <==\n[main]\nenabled = 1\n\n\n==> x.list <==\n{}\n"
TOML = '==> x.toml <==\nversion = "1.0"\n\n[[packages]]\nname = "{}"\n[[packages.conditions]]\n'
TOML += 'key = "evr"\ncomparator = "{}"\nvalue = "3:580.159.04-1"\n'
ZYPP = "==> /etc/zypp/locks <==\n\ntype: package\nmatch_type: glob\nsolvable_name: {}\n"
OLD_MODULES = "hi  linux-modules-nvidia-535-server-5.15.0-91-generic 5.15.0-91.101\n"


def all_say(text: str, status: int) -> dict[str, Probe]:
    return {name: said(text, status) for name in smi.LOOKS}


def codes(view: HostView) -> list[str]:
    return [each.code for each in diagnosed([view])]


@pytest.mark.parametrize(
    ("text", "status", "code", "evidence", "detail"),
    [
        (NOT_REACHED, 9, "driver_no_access", "couldn't communicate", "/dev/nvidiactl and /dev/nvidia0"),
        ("Failed to initialize NVML: Insufficient Permissions\n", 4, "driver_no_access", "Perm", "this user"),
        (LOADER, 127, "driver_library_missing", "libnvidia-ml.so.1", "cannot be loaded"),
        ("Failed to initialize NVML: Function Not Found\n", 13, "driver_library_missing", "Not", "older"),
        (MISMATCH, 18, "driver_module_stale", "mismatch", "loaded and installed, libraries 580.173"),
        (UNKNOWN, 255, "driver_error", "Unknown Error", "in a container, start that anew"),
        ("Unable to determine the device handle for GPU0000:C1:00.0: Unknown Error\n", 255,
         "driver_error", "GPU0000:C1:00.0", "an unknown error"),
        (HEAD + LOST, 15, "driver_error", LOST[:60], "a card is lost"),
    ],
)  # fmt: skip
def test_what_nvidia_smi_complains_of(text: str, status: int, code: str, evidence: str, detail: str) -> None:
    (finding,) = diagnosed([host(probes=all_say(text, status))])
    assert finding.code == code
    assert evidence in finding.evidence
    assert detail in finding.detail
    assert diagnosis.rules()[code].severity == "blocking"


def test_a_warning_behind_the_whole_list_is_shown() -> None:
    probes = {"gpu_query": said(recorded("nvidia-smi-q.txt") + INFOROM, 14)}
    (finding,) = diagnosed([host(probes=probes)])
    assert finding.evidence == f"{INFOROM.strip()} (look: exit status 14)"


def late(*names: str, seconds: float = 18.0) -> dict[str, Probe]:
    return {name: Probe(("nvidia-smi",), seconds=seconds, why="timeout") for name in names}


@pytest.mark.parametrize(
    ("probes", "expected"),
    [
        (late(*smi.LOOKS), {"driver_hangs": 1}),
        (late("gpu_query", "gpu_topology"), {"probe_hangs": 2}),
        (late(*smi.LOOKS, seconds=5.0), {"probe_hangs": 4}),  # by an inventory with a short deadline
    ],
)
def test_nvidia_smi_that_hangs_is_one_finding(probes: dict[str, Probe], expected: dict[str, int]) -> None:
    found = [each.code for each in diagnosis.diagnose([host(probes=probes)])]
    assert {code: found.count(code) for code in ("driver_hangs", "probe_hangs") if code in found} == expected


@pytest.mark.parametrize(
    ("cards", "module", "expected"),
    [
        (ADA + P620, {}, []),
        (ADA + P620, OPEN_595, []),
        (H100 + P4, {}, []),  # nvidia-smi lists as many as are stated, without it
        (P620, {}, ["driver_wrong_flavour"]),
        (P620, OPEN_595, ["driver_wrong_flavour", "driver_too_new"]),
        (V100 + T400, {}, ["driver_wrong_flavour"]),
        (V100 + T400, {"gpu_module": said(CLOSED)}, []),
        (V100 + ADA, OPEN_595, ["driver_wrong_flavour", "driver_too_new"]),
    ],
)
def test_an_old_card_of_a_display_is_not_judged(
    cards: str, module: dict[str, Probe], expected: list[str]
) -> None:
    version = "595.71.05" if module is OPEN_595 else "580.159.04"
    probes = {"gpu_pci": said(cards), **module, "gpu_module_installed": said(version + "\n")}
    assert codes(host(probes=probes, driver="")) == expected


def test_dma_buf_serves_the_cards_beside_that_of_a_display() -> None:
    """Which the module does not serve; a host without any way to the cards is told."""
    bare = {"rdma_peer_memory": said({"modules": [], "symbol": False})}
    assert codes(host(probes={**bare, "gpu_pci": said(ADA + P620)})) == []
    assert "peer_memory_missing" in codes(host(probes={**bare, "gpu_pci": said(V100 + T400)}))


@pytest.mark.parametrize(
    ("probes", "expected"),
    [
        ({}, []),
        ({"gpu_query": said("No devices were found\n", 6)}, ["nouveau_loaded", "gpu_count"]),
        ({**all_say(NOT_REACHED, 9), "gpu_module": Probe(why="missing")},
         ["nouveau_loaded", "driver_not_loaded"]),
    ],
)  # fmt: skip
def test_nouveau_beside_a_driver_that_works(probes: dict[str, Probe], expected: list[str]) -> None:
    assert codes(host(probes={"kernel_modules": NOUVEAU, **probes})) == expected


def pinned(packages: str, locks: str = "", kernel: str = "6.1.0-41-amd64") -> bool:
    rpm = not packages.startswith(("ii", "hi"))
    probes = {
        "gpu_packages_deb": Probe(why="missing") if rpm else said(packages, 1),
        "gpu_packages_rpm": said(packages) if rpm else Probe(why="missing"),
        "gpu_locks": said(locks),
        "kernel": said(f"Linux {kernel} #1 SMP x86_64\n"),
    }
    found = codes(host(probes=probes))
    assert found in ([], ["driver_not_pinned"])
    return not found


@pytest.mark.parametrize(
    ("locks", "expected"),
    [
        (APT.format("nvidia-container-toolkit* libnvidia-container*"), False),
        (APT.format("/^libnvidia-container/ src:nvidia-container-toolkit"), False),
        (APT.format("nvidia-settings"), False),
        (APT.format("*nvidia*"), True),
        (APT.format("nvidia-open:any"), True),
        (APT.format("src:*nvidia*:any src:cuda-drivers:any"), True),
        (APT.format("/nvidia-(open|driver)/"), True),
        (LIST.format("nvidia-container-toolkit-0:1.17.8-1.*"), False),
        (LIST.format("!kmod-nvidia-open-dkms-3:590.*"), False),
        (LIST.format("# Added lock on Mon Jun 22\nkmod-nvidia-open-dkms-3:580.159.04-1.*"), True),
        (LIST.format("3:nvidia-driver-580.159.04-1.el9.*"), True),
        (LIST.format("nvidia-*-3:580.159.04-1.*"), True),
        (LIST.format("glibc-0:2.34-100.el9.*\n" * 500 + "nvidia-driver-3:580.159.04-1.el9.*"), True),
        (TOML.format("kmod-nvidia-open-dkms", "!="), False),
        (TOML.format("kmod-nvidia-open-dkms", "="), True),
        (TOML.format("nvidia-container-toolkit", "="), False),
        (ZYPP.format("nvidia-open*"), True),
        (ZYPP.format("nvidia-container*"), False),
    ],
)
def test_a_pin_of_something_else_is_not_the_drivers(locks: str, expected: bool) -> None:
    assert pinned("ii  nvidia-open 580.159.04-1\n", locks) is expected


@pytest.mark.parametrize(("kernel", "expected"), [("5.15.0-105-generic", False), ("5.15.0-91-generic", True)])
def test_a_hold_of_modules_for_another_kernel_holds_no_driver(kernel: str, expected: bool) -> None:
    assert pinned(OLD_MODULES + "ii  nvidia-driver-535-server 535.161.08-0ubuntu1\n", "", kernel) is expected


@pytest.mark.parametrize(
    "package",
    [
        "dkms-nvidia 570.124.06",
        "nvidia-driver-cuda 570.124.06",
        "nvidia-open-driver-G06-signed-kmp-default 580.105.08_k6.4",
        "nvidia-compute-G06 580.105.08",
        "ii  nvidia-tesla-470-kernel-dkms 470.223.02-1",
    ],
)
def test_packages_of_the_driver_by_other_names(package: str) -> None:
    assert not pinned(f"{package}\n")


PROBE = Path(__file__).resolve().parent.parent / "roles" / "doctor_probe" / "files" / "probe.py"


@pytest.mark.parametrize(
    ("known", "expected"),
    [("nvidia", "580.159.04\n"), ("nvidia-current", "580.159.04\n"), ("nouveau", "")],
)
def test_debians_name_of_the_module(
    known: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "modinfo"
    program.write_text(
        f'#!/bin/sh\n[ "$3" = {known} ] && echo 580.159.04 || {{ echo "modinfo: ERROR" >&2; exit 1; }}\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # the folder is one that is sent to hosts
    spec = importlib.util.spec_from_file_location("probe", PROBE)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.module_installed({}) == expected
