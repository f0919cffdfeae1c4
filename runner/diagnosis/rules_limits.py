"""Limits of processes, and space on disks and in shared memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from runner.diagnosis import loose
from runner.diagnosis.model import Finding, HostView, Rule

GIB = 1 << 30
FULL = GIB  # bytes free below which a run cannot be recorded
DATA = 20 * GIB  # below which no data set of the published workloads fits
TMP = 2 * GIB  # sockets, compilers' caches and locks of ranks go there
SHM = GIB  # NCCL and data loaders; a container that is not told otherwise has 64 MiB
INODES = 0.01  # of all, free
FEW_INODES = 200  # a run writes several files for each host of each cell

RULES = (
    Rule(
        "memlock_session",
        "blocking",
        "Processes that ssh starts may lock too little memory for RDMA",
        "the limit memlock of a session is the distribution's few MiB, so memory cannot be registered with a"
        " network card (ibv_reg_mr fails)",
        "run provision, or write '* - memlock unlimited' and 'root - memlock unlimited' into"
        " /etc/security/limits.d/90-runkit.conf and see that sshd uses PAM",
    ),
    Rule(
        "memlock_session_low",
        "info",
        "Processes that ssh starts may lock little memory; it matters with RDMA only",
        "the limit memlock of a session is the distribution's few MiB, or what the machine around a container"
        " grants",
        "nothing on Ethernet; before RDMA is used, run provision, which raises it or tells who holds it down",
    ),
    Rule(
        "memlock_service",
        "warning",
        "Processes that systemd starts may lock too little memory for RDMA",
        "DefaultLimitMEMLOCK of systemd is the distribution's few MiB, and services without a limit of their"
        " own get it",
        "run provision, or set DefaultLimitMEMLOCK=infinity below [Manager] in /etc/systemd/system.conf.d and"
        " restart the services",
    ),
    Rule(
        "shm_small",
        "warning",
        "Shared memory is small",
        "it was limited when it was mounted; NCCL and data loaders exchange their data there",
        "mount -o remount,size=50% /dev/shm, and state the same in /etc/fstab",
    ),
    Rule(
        "disk_full",
        "blocking",
        "The disk of the runs is full",
        "less than 1 GiB is free, or hardly an inode, so logs or results would be cut off",
        "free space there (of inodes: remove folders of many small files), or state another folder in"
        " bench_agent_root",
    ),
    Rule(
        "runs_not_writable",
        "blocking",
        "The folder of the runs cannot be written to",
        "its file system is mounted read-only, it belongs to another user, or a file lies in its way",
        "mount it for writing, give it to the user who logs in, or move the file away; or state another"
        " folder in bench_agent_root",
    ),
    Rule(
        "data_space",
        "warning",
        "Little space for data sets",
        "less than 20 GiB is free where cluster_data_root lies",
        "free space there or state a folder on a larger disk in cluster_data_root; where the data sets lie"
        " already, nothing",
    ),
    Rule(
        "tmp_space",
        "warning",
        "Little space in /tmp",
        "less than 2 GiB is free; MPI keeps its session and compilers their caches there",
        "remove old files from /tmp, or make it larger",
    ),
    Rule(
        "inodes_short",
        "warning",
        "A file system has hardly any inodes left",
        "many small files used them up; new files fail with 'no space left' though space is free",
        "remove folders of many small files, such as old runs or unpacked data sets",
    ),
)


def check(hosts: Sequence[HostView]) -> Iterator[Finding]:
    """Yield where a process may have too little, or where there is too little space."""
    sessions = _sessions(hosts)
    for host in hosts:
        yield from _memlock_session(host, sessions.get(host.name) or host.text("limits"))
        yield from _memlock_service(host)
        yield from _space(host)
        yield from _runs_root(host)


# --- limits ----------------------------------------------------------------------------------


def _sessions(hosts: Sequence[HostView]) -> dict[str, str]:
    """The limits of a process on each host that the launch host started there by ssh, as ranks are."""
    found: dict[str, str] = {}
    for host in hosts:
        for name, said in loose.items(host.data("ssh")):
            found[name] = loose.text(said, "out") if said.get("status") == 0 else ""
    return found


def _memory(host: HostView) -> int:
    """Bytes of memory; 0 where not known."""
    total = re.search(r"^MemTotal:\s+(\d{1,15}) kB", host.text("meminfo"), re.MULTILINE)
    return int(total[1]) * 1024 if total else 0


def _is_low(limit: str, memory: int) -> bool:
    """Whether a limit in bytes is below half of the memory; "unlimited" and "infinity" are not."""
    return limit.isdecimal() and int(limit) < max(memory // 2, GIB)


def _memlock_session(host: HostView, limits: str) -> Iterator[Finding]:
    line = re.search(r"^Max locked memory\s+(\S{1,20})\s.*", limits, re.MULTILINE)
    if line and _is_low(line[1], _memory(host)):
        code = "memlock_session" if host.stated.has_rdma else "memlock_session_low"
        detail = f"a process that ssh started may lock {int(line[1]) // 1024} KiB"
        yield Finding(code, host.name, " ".join(line[0].split()), detail)


def _memlock_service(host: HostView) -> Iterator[Finding]:
    line = re.search(r"^DefaultLimitMEMLOCK=(\S{1,20})$", host.text("service_limits"), re.MULTILINE)
    if host.stated.has_rdma and line and _is_low(line[1], _memory(host)):
        yield Finding("memlock_service", host.name, line[0], f"a service may lock {int(line[1]) // 1024} KiB")


# --- space -----------------------------------------------------------------------------------


def _space(host: HostView) -> Iterator[Finding]:
    """What ``stat --file-system`` said of the folders that a run writes to."""
    for use, place in loose.items(host.data("space")):
        path, at = loose.text(place, "path"), loose.text(place, "at")
        free, size = (int(loose.number(place, key) or 0) for key in ("free", "size"))
        if code := _short(use, free, size):
            shown = f"{path} on {at}: {free} of {size} bytes free"
            said = f"it holds {_gib(size)}" if use == "shm" else f"{path}: {_gib(free)} free"
            yield Finding(code, host.name, shown, said)
        inodes, left = loose.number(place, "inodes") or 0, loose.number(place, "inodes_free") or 0
        if left < INODES * inodes:
            shown = f"{at}: {left:.0f} of {inodes:.0f} inodes free"
            code = "disk_full" if use == "runs" and left < FEW_INODES else "inodes_short"
            yield Finding(code, host.name, shown, f"{path}: hardly any new file fits")


def _short(use: str, free: int, size: int) -> str:
    """The code of what there is too little of, "" where there is enough."""
    if use == "runs" and free < FULL:  # data sets that lie there already are only read
        return "disk_full"
    bounds = {
        "shm": (size, SHM, "shm_small"),
        "data": (free, DATA, "data_space"),
        "tmp": (free, TMP, "tmp_space"),
    }
    has, least, code = bounds.get(use, (0, 0, ""))
    return code if has < least else ""


def _runs_root(host: HostView) -> Iterator[Finding]:
    """The folder of the runs, or the nearest above it that is there."""
    told = loose.mapping(host.data("runs_root"))
    path, at = loose.text(told, "path"), loose.text(told, "at")
    if told.get("folder") is False:
        yield Finding("runs_not_writable", host.name, f"{at} is no folder", f"{path} cannot be made")
    elif told.get("writable") is False:
        yield Finding("runs_not_writable", host.name, f"{at} is not writable", f"{path} cannot be written to")


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
