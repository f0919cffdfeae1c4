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
# MPI's daemon has two pipes and a socket open for each rank, and some twenty files more. Open MPI 5 started
# none of 8, 16, 24 and 32 ranks with these, nor 4.1.4 of 16. A session of any distribution has 1024.
FILES, FILES_PER_RANK, FILES_LOW = 24, 3, 1024
FILE_SIZE = GIB  # a log of a long run, and the memory that ranks of one host share, are files, too
PROCESSES_LOW = 1024  # with threads, of all that a user runs; distributions give thousands
NO_THREAD = "can't start new thread"  # Python's words
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
        "nofile_session",
        "blocking",
        "Processes that ssh starts may open too few files to start ranks",
        "the limit nofile of a session is too low for the pipes and sockets of MPI's daemon",
        "run provision, or take what sets nofile out of /etc/security/limits.conf and limits.d, and write"
        " '* - nofile 1048576' into /etc/security/limits.d/90-runkit.conf",
    ),
    Rule(
        "nofile_session_low",
        "warning",
        "Processes that ssh starts may open few files",
        "the limit nofile of a session was lowered below 1024, which every distribution gives; data loaders,"
        " NCCL and MPI open files and sockets for each rank and peer",
        "run provision, or take what sets nofile out of /etc/security/limits.conf and limits.d",
    ),
    Rule(
        "fsize_session",
        "blocking",
        "Processes that ssh starts may write small files only",
        "the limit fsize of a session was lowered, which no distribution does; logs and the memory that ranks"
        " share are larger, and who writes more is ended by SIGXFSZ",
        "take what sets fsize out of /etc/security/limits.conf and limits.d",
    ),
    Rule(
        "nproc_session_low",
        "warning",
        "The user of the runs may have few processes and threads",
        "the limit nproc of a session, or of tasks of its service or container (pids.max), was lowered; ranks"
        " and data loaders start many threads each, and fail with 'can't start new thread'",
        "take what sets nproc out of /etc/security/limits.conf and limits.d; see TasksMax of systemd"
        " (systemctl show user-$(id -u).slice) and the container's limit of processes",
    ),
    Rule(
        "shm_small",
        "warning",
        "Shared memory is small",
        "it was limited when it was mounted; NCCL and data loaders exchange their data there",
        "mount -o remount,size=50% /dev/shm, and state the same in /etc/fstab",
    ),
    Rule(
        "shm_not_writable",
        "warning",
        "The user may not write to /dev/shm",
        "its mode was changed, or it is mounted read-only; NCCL and data loaders exchange their data there",
        "as root: chmod 1777 /dev/shm; where it is mounted read-only: mount -o remount,rw /dev/shm",
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
        limits = sessions.get(host.name) or host.text("limits")
        yield from _memlock_session(host, limits)
        yield from _files_session(host, limits)
        yield from _size_session(host, limits)
        yield from _processes_session(host, limits)
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


def _soft(limits: str, name: str) -> tuple[int | None, str]:
    """A soft limit and its line; None where there is none, or it is not known."""
    line = re.search(rf"^Max {name}\s+(\d{{1,18}})\s.*", limits, re.MULTILINE)
    return (int(line[1]), " ".join(line[0].split())) if line else (None, "")


def _files_session(host: HostView, limits: str) -> Iterator[Finding]:
    most, shown = _soft(limits, "open files")
    if most is not None and most < FILES_LOW:
        few = most < FILES + FILES_PER_RANK * host.stated.cards
        detail = f"a process that ssh started may open {most} files, for {host.stated.cards} ranks"
        yield Finding("nofile_session" if few else "nofile_session_low", host.name, shown, detail)


def _size_session(host: HostView, limits: str) -> Iterator[Finding]:
    most, shown = _soft(limits, "file size")
    if most is not None and most < FILE_SIZE:
        detail = f"a process that ssh started may write files of {most >> 10} KiB"
        yield Finding("fsize_session", host.name, shown, detail)


def _processes_session(host: HostView, limits: str) -> Iterator[Finding]:
    """Not of root, who may have more; what a look said of threads holds for everybody."""
    most, shown = _soft(limits, "processes")
    failed = next((name for name, probe in host.probes.items() if NO_THREAD in probe.err), "")
    uid = loose.number(loose.mapping(host.data("session")), "uid")
    if failed:
        detail = f"the look {failed} could not start a thread"
        yield Finding("nproc_session_low", host.name, f"{NO_THREAD}; {shown}", detail)
    elif most is not None and most < PROCESSES_LOW and uid:
        yield Finding("nproc_session_low", host.name, shown, f"its user may have {most}")


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
        if use == "shm" and place.get("writable") is False:
            shown = f"{path}: not writable for the user"
            yield Finding("shm_not_writable", host.name, shown, f"no file can be made in {path}")
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
