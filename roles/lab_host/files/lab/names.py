"""Where a lab keeps what, and the marks by which everything of it is found again.

A lab is known by the name of its cluster's folder. What it makes on this machine:

    STATE/NAME/            the plan (lab.json), and per host its disk; goes with `down`
    CACHE/                 root file systems and packages; stays unless `down --purge`
    bridge rk-NAME         with one veth vb-HOST per running host
    cgroup runkit-lab/NAME/{HOST,proxy}
    RUNKIT_LAB=NAME        in the environment of every process that `up` starts
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

STATE = Path("/var/lib/runkit/lab")
CACHE = Path("/var/cache/runkit/lab")
MARK = "RUNKIT_LAB"
PORT = 31420  # of the package proxy, on the bridge's address only

# Root in a lab host is an ordinary user id on the machine, and the ids above it follow: a user namespace, so
# that a capability in there is worth nothing out here. Each host has a range of its own, and so the kernel's
# limits per user for itself. Distributions and systemd leave these free (systemd.io/UIDS-GIDS, "container").
UIDS, UID_COUNT = 1342177280, 65536

# With its prefix and the number of a host, an interface name of 15 characters at most. No digit at the end:
# what belongs to host 1 of lab x1 must not look like what belongs to host 11 of lab x.
_NAME = re.compile(r"[a-z]([a-z0-9]{0,6}[a-z])?", re.ASCII)


class LabError(Exception):
    """One line for a person: what, where, what to do."""


@dataclass(frozen=True, slots=True)
class Host:
    """One host of a lab as planned; ``address`` is IPv4 on the lab's bridge."""

    name: str
    release: str
    address: str
    cards: int
    uid: int  # of its root, on this machine


@dataclass(frozen=True, slots=True)
class Lab:
    """A lab as planned: which folder it serves, its network, its hosts."""

    name: str
    folder: str
    subnet: str  # the first three bytes of its /24, such as 10.213.1
    mirror: str  # where debootstrap fetches; "" is its own default
    hosts: tuple[Host, ...]

    @property
    def bridge(self) -> str:
        """The interface on this machine."""
        return f"rk-{self.name}"

    @property
    def gateway(self) -> str:
        """This machine's address on the lab's network."""
        return f"{self.subnet}.1"

    def host(self, name: str) -> Host:
        """The host of that name. Raises LabError."""
        for host in self.hosts:
            if host.name == name:
                return host
        raise LabError(f"{name}: no host of lab {self.name}; it has {', '.join(h.name for h in self.hosts)}")


def checked_name(name: str) -> str:
    """The name of a lab, which becomes part of paths and of interface names. Raises LabError."""
    if not _NAME.fullmatch(name):
        text = (
            "the folder of a lab is named by 1 to 8 small letters and digits, letters at both ends; rename it"
        )
        raise LabError(f"{name}: {text}")
    return name


def folder(name: str) -> Path:
    """Everything that a lab keeps, its caches aside."""
    return STATE / checked_name(name)


def disk(name: str, host: str) -> Path:
    """Everything that one host keeps."""
    return folder(name) / "hosts" / host


def read(name: str) -> Lab | None:
    """The plan of a lab; None where there is none."""
    try:
        document: dict[str, Any] = json.loads((folder(name) / "lab.json").read_text("utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        return None  # damaged, as by hand; what the kernel knows of the lab is found without it
    try:
        return Lab(**{**document, "hosts": tuple(Host(**host) for host in document["hosts"])})
    except (KeyError, TypeError):
        return None


def write(lab: Lab) -> None:
    """Keep the plan, whole or not at all."""
    path = folder(lab.name) / "lab.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".tmp")
    fresh.write_text(json.dumps(asdict(lab), indent=1), "utf-8")
    os.replace(fresh, path)


def known() -> tuple[str, ...]:
    """The labs that left a folder on this machine."""
    found = STATE.iterdir() if STATE.is_dir() else ()
    return tuple(sorted(path.name for path in found if path.is_dir() and _NAME.fullmatch(path.name)))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file or folder for oneself; the kernel gives it back however its holder dies."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
