"""What a lab left on this machine, as the kernel tells it: no file of ours is believed.

Whatever was killed, however far `up` came, this finds it; and `remove` takes it away.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import names

CGROUPS = Path("/sys/fs/cgroup")
NSPAWN = Path("/run/systemd/nspawn")  # where systemd-nspawn keeps locks and propagation folders
GRACE_S = 8.0  # for a host to shut down in order


@dataclass(frozen=True, slots=True)
class Traces:
    """Everything of one lab: ids of processes, mount points, interfaces, cgroups, folders."""

    processes: tuple[int, ...]
    mounts: tuple[str, ...]
    links: tuple[str, ...]
    cgroups: tuple[str, ...]
    folders: tuple[str, ...]

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self))


def find(name: str) -> Traces:
    """Look at all there is."""
    return Traces(
        processes=tuple(sorted({*marked(name), *inside(name)})),
        mounts=mounts(name),
        links=links(name),
        cgroups=tuple(map(str, cgroups(name))),
        folders=tuple(str(path) for path in (names.folder(name), *_nspawn_folders(name)) if path.exists()),
    )


# --- processes -----------------------------------------------------------------------------


def marked(name: str) -> list[int]:
    """Processes that `up` started on this machine, this one and those that wait for it aside."""
    mark, own, found = f"{names.MARK}={name}".encode(), _ancestors(), []
    for pid in _pids():
        if pid not in own and mark in _read(f"/proc/{pid}/environ").split(b"\0"):
            found.append(pid)
    return found


def inside(name: str, host: str | None = None) -> list[int]:
    """Processes in the cgroups of a lab or of one host: its systemd-nspawn, and everything in the host."""
    found: set[int] = set()
    for cgroup in cgroups(name, host):
        found.update(int(pid) for pid in _read(f"{cgroup}/cgroup.procs").split())
    return sorted(found - {0})


def leader(name: str, host: str) -> int | None:
    """The first process of a running host, its systemd; None where the host is off."""
    for pid in inside(name, host):
        for line in _read(f"/proc/{pid}/status").splitlines():
            if line.startswith(b"NSpid:") and line.split()[2:] == [b"1"]:
                return pid
    return None


def is_attended(name: str, host: str) -> bool:
    """Whether a host's systemd-nspawn lives; without it the host runs on, and cannot be started again."""
    return any(_namespaces(pid) == 1 for pid in inside(name, host))


def _namespaces(pid: int) -> int:
    """In how many process id namespaces a process is: 1 on this machine itself; 0 where it is gone."""
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"NSpid:"):
            return len(line.split()) - 1
    return 0


def shut_down(name: str, hosts: list[str]) -> None:
    """Ask hosts to shut down in order, and wait for it; whoever is slow stays."""
    for host in hosts:
        if pid := leader(name, host):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGRTMIN + 4)  # systemd(1): poweroff.target
    deadline = time.monotonic() + GRACE_S
    while any(leader(name, host) for host in hosts) and time.monotonic() < deadline:
        time.sleep(0.05)


def kill(name: str, host: str | None = None) -> None:
    """End what is in the cgroups; the death of a host's first process takes all of it along."""
    deadline = time.monotonic() + GRACE_S
    while (pids := inside(name, host)) and time.monotonic() < deadline:
        _end(pids)
        time.sleep(0.02)


def _pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _ancestors() -> set[int]:
    """This process and those above it, which may carry the mark too."""
    found, pid = set(), os.getpid()
    while pid > 1:
        found.add(pid)
        stat = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        pid = int(stat[1]) if stat else 0
    return found


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:  # it ended meanwhile
        return b""


# --- mounts, links, cgroups, folders ---------------------------------------------------------


def mounts(name: str) -> tuple[str, ...]:
    """Mount points below the lab's folder, the deepest first."""
    under = f"{names.folder(name)}/"
    points = [line.split()[4] for line in _read("/proc/self/mountinfo").decode().splitlines()]
    return tuple(sorted((point for point in points if point.startswith(under)), key=len, reverse=True))


def links(name: str) -> tuple[str, ...]:
    """The lab's bridge and the interfaces that are joined to it."""
    bridge = f"rk-{name}"
    ours = [
        path.parent.name for path in Path("/sys/class/net").glob("*/master") if path.resolve().name == bridge
    ]
    hosts = [
        path.name
        for path in Path("/sys/class/net").glob(f"vb-{name}*")
        if path.name[3:].strip("0123456789") == name
    ]
    there = [bridge] if Path("/sys/class/net", bridge).exists() else []
    return tuple(sorted({*ours, *hosts})) + tuple(there)


def cgroups(name: str, host: str | None = None) -> list[Path]:
    """The cgroups of a lab or of one host in every hierarchy, the deepest first."""
    found: list[Path] = []
    for hierarchy in hierarchies():
        top = hierarchy / "runkit-lab" / name / (host or "")
        for folder, _, _ in os.walk(top, topdown=False):
            found.append(Path(folder))
    return found


def hierarchies() -> list[Path]:
    """Each mounted cgroup hierarchy: one in v2, one per controller in v1, both in the hybrid layout."""
    found = []
    for line in _read("/proc/self/mountinfo").decode().splitlines():
        words = line.split()
        point, kind = Path(words[4]), words[words.index("-") + 1]
        if kind in ("cgroup", "cgroup2") and (CGROUPS in (point, point.parent)):
            found.append(point)
    return found


def _nspawn_folders(name: str) -> list[Path]:
    hosts = [path for path in NSPAWN.glob(f"propagate/{name}*") if path.name.strip("0123456789") == name]
    roots = [Path(point) for point in mounts(name) if point.endswith("/root")]
    for root in roots:
        stat = root.stat()
        hosts.append(NSPAWN / "locks" / f"inode-{stat.st_dev}:{stat.st_ino}")
    return hosts


def remove(name: str) -> None:
    """Take away everything of a lab but its caches. Raises LabError where something resists."""
    deadline = time.monotonic() + GRACE_S
    while (makers := set(marked(name)) - set(inside(name))) and time.monotonic() < deadline:
        _end(makers)  # an `up` that is still at it must not make new things
        time.sleep(0.02)
    lab = names.read(name)
    shut_down(name, [host.name for host in lab.hosts] if lab else [])
    kill(name)
    for path in _nspawn_folders(name):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for argv in (
        *(["umount", "--lazy", point] for point in mounts(name)),
        *(["ip", "link", "delete", link] for link in links(name)),
    ):
        subprocess.run(argv, capture_output=True)  # whether it did is looked at below
    _remove_cgroups(name)
    if not mounts(name):  # never delete through a mount
        shutil.rmtree(names.folder(name), ignore_errors=True)
    if left := find(name):
        said = ", ".join(f"{kind} {' '.join(map(str, what))}" for kind, what in asdict(left).items() if what)
        raise names.LabError(f"lab {name}: cannot be removed: {said}; end what uses it, then again: lab down")


def _end(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _remove_cgroups(name: str) -> None:
    above = [hierarchy / "runkit-lab" for hierarchy in hierarchies()]
    for cgroup in (*cgroups(name), *above):
        with contextlib.suppress(OSError):  # other labs may be in those above; ours are looked at below
            cgroup.rmdir()
