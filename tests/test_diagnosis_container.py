"""Containers on cards: each rule finds its fault in a host that is broken in that one way.

No host with cards and a container engine was at hand: ``docker info`` has the members that Docker 28.2 prints
(those of a client without its daemon are measured), messages are those of reports from the field, and what a
process finds inside has the forms of /proc/self/limits, df and ``nvidia-smi -L``, which are recorded.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from gpu_hosts import DOCKER, HOOK, INSIDE, STARTED, Case, diagnosed, found, host, said

from runner.diagnosis import rules_container
from runner.diagnosis.model import Probe

# What docker 28.2.2 prints without its daemon, shortened to the members that the rules look at; status 1.
DOWN = json.dumps({"ServerVersion": "", "CgroupDriver": "", "Runtimes": None, "CDISpecDirs": None})
NO_DAEMON = (
    "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n"
)
NO_CDI = {"container_ways": said({"cdi": [], "hook": HOOK})}
NO_WAY = {"container_ways": said({"cdi": [], "hook": None})}
CDI_ALONE = {"container_ways": said({"cdi": ["/etc/cdi/nvidia.yaml"], "hook": None})}
PLAIN = {"io.containerd.runc.v2": {}, "runc": {}}
REFUSED = {
    "image": STARTED["image"],
    "status": 125,
    "out": "",
    "err": 'docker: Error response from daemon: could not select device driver "" with capabilities: '
    "[[gpu]].\n",
}
SWAP = "WARNING: Your kernel does not support swap limit capabilities or the cgroup is not mounted.\n"
# In the form of Docker 20.10, whose client ends with status 0 and has the reason in ServerErrors.
DOWN_20 = json.dumps({"ServerVersion": "", "ServerErrors": [NO_DAEMON.strip()]})
RUNC = "docker: Error response from daemon: failed to create task for container: failed to create shim task: "
NO_SHELL = (
    RUNC + 'OCI runtime create failed: runc create failed: exec: "sh": executable file not found in $PATH\n'
)
NO_SHELL_20 = RUNC.replace("task", "shim") + 'OCI runtime create failed: exec: "sh": stat sh: no such file\n'
TOOLKIT = RUNC + "error running prestart hook #0: exit status 1, stderr: Auto-detected mode as 'legacy'\n"
TOO_NEW = (
    TOOLKIT + "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0, please update\n"
)
NO_LIBRARY = TOOLKIT + "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1\n"
NO_RUNTIME = RUNC + 'exec: "nvidia-container-runtime": executable file not found in $PATH: <nil>: unknown.\n'
NO_SMI = "sh: 1: nvidia-smi: not found\n"
EMULATED = "Emulate Docker CLI using podman. Create /etc/containers/nodocker to quiet msg.\n"
API = "the API of Docker"
FIELD = "reports from the field"


def refused(status: int, err: str, out: str = "") -> dict[str, Probe]:
    return {"container_start": said({**REFUSED, "status": status, "err": err, "out": out})}


def podman(version: str) -> dict[str, Probe]:
    """What podman-docker makes of docker info, shortened."""
    told = {"host": {"buildahVersion": "1.33.7"}, "version": {"Version": version}}
    return {"docker_info": said(told, err=EMULATED)}


def inside(old: str, new: str) -> dict[str, Probe]:
    assert old in INSIDE
    return {"container_start": said({**STARTED, "out": INSIDE.replace(old, new)})}


def info(**members: Any) -> dict[str, Probe]:
    return {"docker_info": said({**DOCKER, **members})}


def one(code: str, probes: Mapping[str, Probe], evidence: str, detail: str, source: str) -> Case:
    return Case(code, [host(probes=probes)], evidence, detail, source)


LIBRARY = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0\n"  # as Debian 12 has it
INBOX = {"rdma_peer_memory": said({"modules": [], "symbol": False})}
OLD = info(Runtimes=PLAIN, CDISpecDirs=None, ServerVersion="20.10.24+dfsg1")  # before CDI
CASES = (
    one("container_engine_missing", {"docker_info": Probe(why="missing")}, "docker", "", "measured"),
    one("container_engine_down", {"docker_info": Probe(("docker",), 1, DOWN, NO_DAEMON)},
        "Cannot connect to the Docker daemon", "", "measured"),
    one("container_engine_down", {"docker_info": Probe(("docker",), 0, DOWN_20)},
        "Cannot connect to the Docker daemon", "", API),
    one("container_engine_down", {"docker_info": Probe(("docker",), 1, DOWN, SWAP + NO_DAEMON)},
        "Cannot connect to the Docker daemon", "", FIELD),
    one("container_engine_down", {"docker_info": Probe(("docker",), 125, "", EMULATED + "Error: storage\n")},
        "Error: storage", "docker is podman here", FIELD),
    one("container_engine_podman", podman("4.9.4-rhel"), "podman 4.9.4-rhel", "docker is podman here", FIELD),
    one("container_gpus_fewer", {**podman("5.4.2"), **inside("GPU 0: ", "")}, "nothing", "0 of 1", FIELD),
    one("container_gpu_unset", {**info(Runtimes=PLAIN), **NO_WAY},
        "Runtimes: io.containerd.runc.v2, runc; CDI files with nvidia.com/gpu: none", "28.2.2", API),
    one("container_gpu_unset", {**OLD, **CDI_ALONE},
        "nvidia.yaml", "20.10.24", API),
    one("container_loses_gpus", NO_CDI, "CgroupDriver: systemd", "no CDI file", API),
    one("container_start_fails", {"container_start": said(REFUSED)},
        "could not select device driver", "image nvcr.io/nvidia/pytorch:24.12-py3", FIELD),
    one("container_start_fails", {"container_start": said({**REFUSED, "err": ""})},
        "exit status 125", "image nvcr.io", FIELD),
    one("container_start_fails", refused(125, SWAP + str(REFUSED["err"])),
        "could not select device driver", "", FIELD),
    one("container_start_fails", refused(127, NO_LIBRARY), "container-cli: initialization error", "", FIELD),
    one("container_start_fails", refused(127, NO_RUNTIME), "nvidia-container-runtime", "", FIELD),
    one("container_start_fails", refused(255, "", "Limit\nFailed to initialize NVML: Unknown Error\n"),
        "Failed to initialize NVML", "", FIELD),
    *(one("container_image_unfit", refused(status, err), err.strip()[-40:], "image nvcr.io/", FIELD)
      for status, err in ((127, NO_SHELL), (127, NO_SHELL_20), (125, TOO_NEW), (127, NO_SMI),
                          (255, "exec /usr/bin/sh: exec format error\n"))),
    one("container_gpus_fewer", inside("GPU 0: ", "Failed to initialize NVML: Unknown Error "),
        "nvidia-smi -L: nothing", "0 of 1 cards", FIELD),
    one("container_memlock", inside("unlimited            unlimited ", "65536                65536     "),
        "Max locked memory         65536", "in a container", "recorded form"),
    one("container_shm", inside("134217728     0 134217728", "65536     0     65536"),
        "tmpfs 65536 0 65536 0% /dev/shm", "64 MiB", "recorded form"),
    one("container_rdma_missing", inside(LIBRARY, ""),
        "libibverbs.so.1: not found", "image nvcr.io/nvidia/pytorch:24.12-py3", "measured"),
    one("container_rdma_old", {**inside(LIBRARY, LIBRARY.replace("14.44.0", "0.0")), **INBOX},
        "/usr/lib/x86_64-linux-gnu/libibverbs.so.1.0.0", "image nvcr.io", "the name before rdma-core"),
    one("container_not_tried", {"container_start": said({"image": None, "images": 2})},
        "docker image ls", "2 images are here", "measured"),
)  # fmt: skip


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case.code}-{n}") for n, case in enumerate(CASES)])
def test_a_host_broken_in_one_way(case: Case) -> None:
    found(case)


def test_every_rule_has_a_case() -> None:
    assert {case.code for case in CASES} == {rule.code for rule in rules_container.RULES}


@pytest.mark.parametrize(
    ("probes", "stated"),
    [
        pytest.param({}, {}, id="as it should be"),
        pytest.param({**info(Runtimes=PLAIN), **CDI_ALONE}, {}, id="CDI alone"),
        pytest.param({**info(Runtimes=PLAIN, CgroupDriver="cgroupfs"), **NO_CDI}, {}, id="the hook alone"),
        pytest.param({**info(CgroupDriver="cgroupfs"), **NO_CDI}, {}, id="cgroupfs and the older hook"),
        pytest.param(inside("unlimited            unlimited ", "65536                65536     "),
                     {"fabric": "ethernet"}, id="memory that nobody locks"),
        pytest.param(inside(LIBRARY, ""), {"fabric": "ethernet"}, id="no library for what is not there"),
        pytest.param(inside("libibverbs:\n" + LIBRARY, ""), {}, id="not asked for it"),
        pytest.param(inside(LIBRARY, LIBRARY.replace("14.44.0", "0.0")), {}, id="old, with OFED"),
        pytest.param({"container_start": Probe(why="missing")}, {}, id="not tried, and told elsewhere"),
        pytest.param({**podman("5.4.2"), **NO_WAY}, {}, id="podman that knows --gpus"),
        pytest.param(podman("what"), {}, id="podman of a version that nobody knows"),
        pytest.param(inside("134217728     0", "9" * 5000 + " 0"), {}, id="a size of 5000 digits"),
        pytest.param({"docker_info": Probe(why="missing")}, {"card_model": "", "fabric": ""}, id="no cards"),
    ],
)  # fmt: skip
def test_a_healthy_host_has_no_finding(probes: Mapping[str, Probe], stated: Mapping[str, Any]) -> None:
    assert diagnosed([host(probes=probes, **stated)]) == []


@pytest.mark.parametrize(
    "text", ["[]", "7", '{"image": 3, "status": 0}', '{"ServerVersion": 1, "Runtimes": 2}', "{"]
)
def test_answers_of_another_shape_are_no_crash(text: str) -> None:
    diagnosed([host(probes={"docker_info": said(text)}), host(probes={"container_start": said(text)})])
    diagnosed([host(probes={"container_ways": said(text)})])


# --- the look itself, with a stand-in for docker ---------------------------------------------------------

LOOK = Path(__file__).resolve().parent.parent / "roles" / "doctor_probe" / "files" / "probe.py"
DOCKER_STAND_IN = """\
#!/bin/sh
echo "$@" >> {folder}/calls
case $1 in
image) cat {folder}/images ;;
run) {run} ;;
esac
"""


PYTORCH = "nvcr.io/nvidia/pytorch:24.12-py3"
OTHERS = (
    "<none>:<none>",
    "debian:12",
    "nvcr.io/nvidia/k8s/dcgm-exporter:4.2.3-4.1.3-distroless",
    "nvidia/cuda:13.0.0-base",
)


def started(
    folder: Path, run: str, deadline_s: float = 20.0, more: Sequence[str] = ()
) -> tuple[Probe, list[str]]:
    """What the look for a container says with such an engine, and the words of each call of it."""
    (folder / "docker").write_text(DOCKER_STAND_IN.format(folder=folder, run=run))
    (folder / "docker").chmod(0o755)
    (folder / "images").write_text("\n".join([*OTHERS, PYTORCH, *more]))
    program = (
        "import sys; sys.dont_write_bytecode = True; sys.path.insert(0, sys.argv.pop(1)); import probe\n"
        "probe.DRIVER = '/proc/self/limits'\n"  # there is no such driver here
        "sys.exit(probe.main(sys.argv))"
    )
    request = json.dumps({"only": ["container_start"], "deadline_s": deadline_s})
    argv = [sys.executable, "-c", program, str(LOOK.parent), request]
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True, timeout=60)
    probe = Probe(**json.loads(done.stdout)["probes"]["container_start"])
    return probe, (folder / "calls").read_text().splitlines()


def test_the_container_is_of_an_image_that_is_here_and_goes_with_the_look(tmp_path: Path) -> None:
    (tmp_path / "inside").write_text(INSIDE)
    probe, calls = started(tmp_path, f"cat {tmp_path}/inside")
    assert json.loads(probe.out) == STARTED
    assert diagnosed([host(probes={"container_start": probe})]) == []
    words = calls[1].split()
    assert {"run", "--rm", "--network", "none", "--gpus", "all", "memlock=-1"} <= set(words)
    assert words[words.index("--pull") + 1] == "never"
    assert len(calls) == 2


def test_an_image_of_a_workload_comes_first(tmp_path: Path) -> None:
    own = "registry.example:5000/runkit/resnet50_ngc_pytorch:99b1c898"
    probe, _ = started(tmp_path, "true", more=[own])
    assert json.loads(probe.out)["image"] == own


def test_a_container_that_hangs_is_removed(tmp_path: Path) -> None:
    """Nor does that keep anybody from training: eight cards without persistence may take so long to wake."""
    probe, calls = started(tmp_path, "sleep 60", deadline_s=9.0)
    name = calls[1].split()[calls[1].split().index("--name") + 1]
    assert calls[2] == f"rm --force {name}"
    assert (probe.why, diagnosed([host(probes={"container_start": probe})])) == ("timeout", [])
