"""Containers on the cards: the engine, what gives it the cards, and what a process inside finds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
        "container_not_tried",
        "info",
        "No container was started on the cards",
        "no image for cards lies on the host, and none is fetched for a look",
        "bring the image of a workload to the host, and look again",
    ),
)

LEAST_SHM_KIB = 1 << 20  # 1 GiB: NCCL and data loaders of eight ranks do not fit into docker's own 64 MiB


def check(hosts: Sequence[HostView]) -> Iterator[Finding]:
    """Yield what keeps containers from the cards, on hosts that have some."""
    for host in hosts:
        if host.stated.has_gpus:
            info = _info(host)
            if info is not None:
                yield from _cards(host, info)
                yield from _inside(host)
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
        line = next((each for each in probe.err.splitlines() if each.strip()), f"exit status {probe.status}")
        yield Finding("container_engine_down", host.name, line, "docker info has no answer of the engine")


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
        last = [line for line in (err or out).splitlines() if line.strip()]
        line = last[0] if last else f"exit status {said.get('status')}"
        yield Finding("container_start_fails", host.name, line, f"image {image}, with --gpus all")
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
    if len(shm) > 1 and shm[1].isdecimal() and int(shm[1]) < LEAST_SHM_KIB:
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
