"""Containers on the cards: the engine, what gives it the cards, and what a process inside finds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runner.diagnosis import loose
from runner.diagnosis.model import Finding, HostView, Rule

RULES = (
    Rule(
        "container_engine_missing",
        "blocking",
        "No container engine",
        "docker is not installed, or not in the PATH of a login without a terminal",
        "install it (provision does); docker 28.2 or later has CDI switched on",
    ),
    Rule(
        "container_engine_down",
        "blocking",
        "The container engine does not answer",
        "its service does not run, or the user may not talk to it",
        "start docker (systemctl enable --now docker), or add the user to the group docker and log in anew",
    ),
    Rule(
        "container_engine_podman",
        "blocking",
        "Docker is a podman that gives no cards",
        "podman-docker answers to the name docker, and podman before 5 passes over --gpus",
        "bring podman 5 to the host, or remove podman-docker and install docker: provision installs what "
        "container_runtime_engine states",
    ),
    Rule(
        "container_gpu_unset",
        "blocking",
        "The container engine does not know of the cards",
        "the NVIDIA container toolkit is missing or the engine was not configured for it: no runtime, no CDI "
        "file",
        "install nvidia-container-toolkit, then nvidia-ctk runtime configure --runtime=docker and restart "
        "docker",
    ),
    Rule(
        "container_loses_gpus",
        "warning",
        "Containers lose the cards when systemd reloads its units",
        "the engine uses systemd for control groups and the older hook for the cards: daemon-reload takes "
        "them away",
        'make CDI files (nvidia-ctk cdi generate), or set "exec-opts": ["native.cgroupdriver=cgroupfs"] in '
        "/etc/docker/daemon.json",
    ),
    Rule(
        "container_start_fails",
        "blocking",
        "A container on the cards does not start",
        "the engine, the NVIDIA container toolkit and the driver do not fit together",
        "read the message, then nvidia-container-cli info and journalctl -u docker on the host",
    ),
    Rule(
        "container_gpus_fewer",
        "blocking",
        "A container sees fewer cards than the host",
        "the engine's configuration or a stale CDI file leaves cards out",
        "make the CDI files anew (nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml) and restart the "
        "engine",
    ),
    Rule(
        "container_memlock",
        "blocking",
        "A process in a container may not lock memory",
        "the engine itself is held to a limit, which --ulimit memlock=-1 cannot exceed: RDMA then fails to "
        "register",
        "set LimitMEMLOCK=infinity for docker's service and restart it (provision does)",
    ),
    Rule(
        "container_shm",
        "warning",
        "Shared memory in a container is small",
        "the host's own /dev/shm is small, and containers of training share it",
        "make it larger: mount -o remount,size=50% /dev/shm, and the same in /etc/fstab",
    ),
    Rule(
        "container_rdma_missing",
        "warning",
        "An image has no library for RDMA",
        "libibverbs was not installed into it: NCCL then goes over TCP and says so only in its log",
        "add libibverbs1 and ibverbs-providers (or rdma-core) to the image; any release of them will do",
    ),
    Rule(
        "container_rdma_old",
        "info",
        "The library for RDMA in an image is of an OFED before 5, the host's kernel has no OFED",
        "the image was made for hosts with MLNX_OFED 4: its library asks for what only its module has",
        "where NCCL finds no card, take a newer image, or put rdma-core's libraries into it",
    ),
    Rule(
        "container_image_unfit",
        "info",
        "An image does not start on this host",
        "it asks for a newer driver, is for another processor, or lacks a shell or nvidia-smi",
        "nothing where it is not for training: bring the image of a workload to the host, and look again; "
        "else update the driver, or take an image that fits it",
    ),
    Rule(
        "container_not_tried",
        "info",
        "No container was started on the cards",
        "no image for cards lies on the host, and none is fetched for a look",
        "bring the image of a workload to the host, and look again",
    ),
)

# What is of the image alone, in the words of runc, crun, the kernel, and shells.
_UNFIT = re.compile(
    r"unsatisfied condition:|exec: \"sh\": |executable file `sh` not found|exec \S*/sh: exec format error|"
    r"exec user process caused|\bsh: [line\d: ]{0,16}nvidia-smi: (?:command )?not found"
)
_REMARK = re.compile(r"WARNING\b|.*\blevel=warning\b|Emulate Docker CLI", re.IGNORECASE)
_PODMAN_GPUS = 5  # the first podman that knows --gpus
LEAST_SHM_KIB = 1 << 20  # 1 GiB: NCCL and data loaders of eight ranks do not fit into docker's own 64 MiB


def check(hosts: Sequence[HostView]) -> Iterator[Finding]:
    """Yield what keeps containers from the cards, on hosts that have some."""
    for host in hosts:
        if host.stated.has_gpus:
            info = _info(host)
            if info is not None:
                yield from _cards(host, info)
                yield from _inside(host)
            elif (podman := _podman(host)) is not None:
                yield from _emulated(host, podman)
            else:
                yield from _engine(host)


def _info(host: HostView) -> Mapping[str, Any] | None:
    """What ``docker info`` says of the engine; None where it does not answer, and the client speaks alone."""
    data = host.data("docker_info")
    return data if isinstance(data, dict) and data.get("ServerVersion") else None


def _engine(host: HostView) -> Iterator[Finding]:
    probe = host.probe("docker_info")
    if probe.why == "missing":
        yield Finding(
            "container_engine_missing", host.name, "docker: no such program", "images cannot be run"
        )
    elif probe.why is None:
        # Before 23 the client alone has an answer, with status 0, and says in it why there is no more.
        errors = loose.texts(loose.mapping(host.data("docker_info")), "ServerErrors")
        line = _telling("\n".join([probe.err, *errors])) or f"exit status {probe.status}"
        here = "docker is podman here: " if "using podman" in probe.err else ""
        yield Finding(
            "container_engine_down", host.name, line, f"{here}docker info has no answer of the engine"
        )


def _podman(host: HostView) -> str | None:
    """The version of the podman that answers to the name docker, "" where it does not say; else None."""
    said = loose.mapping(host.data("docker_info"))
    if "buildahVersion" not in loose.mapping(said.get("host")):
        return None
    return loose.text(loose.mapping(said.get("version")), "Version")


def _emulated(host: HostView, version: str) -> Iterator[Finding]:
    """Its ways to the cards are not those of docker: what a container sees says it."""
    major = re.match(r"\d{1,3}\b", version)
    if major and int(major[0]) < _PODMAN_GPUS:
        text = "docker is podman here, and gives a container no cards"
        yield Finding("container_engine_podman", host.name, f"podman {version}", text)
    else:
        yield from _inside(host)


def _telling(text: str) -> str:
    """The line of a message that says what is wrong: the first that is no remark."""
    lines = [line for line in text.splitlines() if line.strip()]
    return next((line for line in lines if not _REMARK.match(line)), lines[0] if lines else "")


def _cards(host: HostView, info: Mapping[str, Any]) -> Iterator[Finding]:
    """A configured runtime, the toolkit's hook alone (for --gpus), or CDI files that the engine reads."""
    known, ways = info.get("Runtimes"), host.data("container_ways")
    if not isinstance(ways, dict):
        return
    runtimes = sorted(known) if isinstance(known, dict) else []
    cdi = [str(path) for path in ways["cdi"]] if isinstance(ways.get("cdi"), list) else []
    if "nvidia" not in runtimes and not ways.get("hook") and not (cdi and info.get("CDISpecDirs")):
        named, files = (", ".join(each) or "none" for each in (runtimes, cdi))
        line = f"Runtimes: {named}; CDI files with nvidia.com/gpu: {files}"
        yield Finding(
            "container_gpu_unset", host.name, line, f"docker {info['ServerVersion']} has no way to them"
        )
    elif info.get("CgroupDriver") == "systemd" and not cdi:
        yield Finding(
            "container_loses_gpus", host.name, "CgroupDriver: systemd", "no CDI file has nvidia.com/gpu"
        )


def _inside(host: HostView) -> Iterator[Finding]:
    said = host.data("container_start")
    if not isinstance(said, dict):
        return
    image, out, err = said.get("image"), str(said.get("out")), str(said.get("err"))
    if image is None:
        text = f"{said.get('images')} images are here, none by its name for cards"
        yield Finding("container_not_tried", host.name, "docker image ls", text)
        return
    if said.get("status") != 0:
        toolkit = re.search(r"nvidia-container-cli: .*", err)  # on a line of its own, behind the engine's
        line = (
            toolkit[0]
            if toolkit
            else _telling(err) or out.strip().rpartition("\n")[2] or f"exit status {said.get('status')}"
        )
        code = "container_image_unfit" if _UNFIT.search(err) else "container_start_fails"
        yield Finding(code, host.name, line, f"image {image}, with --gpus all")
        return
    yield from _seen(host, str(image), out)


def _seen(host: HostView, image: str, out: str) -> Iterator[Finding]:
    cards = [line for line in out.splitlines() if re.match(r"GPU \d+: ", line)]
    if len(cards) < host.stated.cards:
        line = cards[-1] if cards else "nvidia-smi -L: nothing"
        text = f"{len(cards)} of {host.stated.cards} cards in a container of {image}"
        yield Finding("container_gpus_fewer", host.name, line, text)
    locked = next((line for line in out.splitlines() if line.startswith("Max locked memory")), None)
    if locked and "unlimited" not in locked.split()[3:4] and host.stated.has_rdma:
        yield Finding("container_memlock", host.name, locked.strip(), f"in a container of {image}")
    shm = next((line.split() for line in out.splitlines() if line.endswith(" /dev/shm")), [])
    if len(shm) > 1 and re.fullmatch(r"\d{1,15}", shm[1]) and int(shm[1]) < LEAST_SHM_KIB:
        text = f"{int(shm[1]) // 1024} MiB in a container of {image}"
        yield Finding("container_shm", host.name, " ".join(shm), text)
    yield from _verbs(host, image, out.splitlines())


def _verbs(host: HostView, image: str, lines: Sequence[str]) -> Iterator[Finding]:
    """What of RDMA the image brings. Its release need not be the host's: the kernel's interface is stable.

    Files are called libibverbs.so.1.ABI.RELEASE from rdma-core on; 1.0.0 is from before it.
    """
    if not host.stated.has_rdma or "libibverbs:" not in lines:
        return
    libraries = [line for line in lines if "/libibverbs.so.1." in line]
    if not libraries:
        yield Finding("container_rdma_missing", host.name, "libibverbs.so.1: not found", f"image {image}")
    elif all(line.endswith(".so.1.0.0") for line in libraries) and _without_ofed(host):
        yield Finding("container_rdma_old", host.name, libraries[0], f"image {image}")


def _without_ofed(host: HostView) -> bool:
    """Whether the kernel is known to have its own modules for RDMA, not those of an OFED."""
    said = host.data("rdma_peer_memory")
    return isinstance(said, dict) and said.get("symbol") is False
