"""Starting something that outlives us, in a cgroup of its own, which is how it is found again."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import traces

# What systemd in a host writes to, to divide its own cgroup further (cgroups(7), delegation).
DIVIDED = ("cgroup.procs", "tasks", "cgroup.subtree_control", "cgroup.threads")


@dataclass(frozen=True, slots=True)
class Place:
    """The cgroup ``runkit-lab/LAB/WHAT``; ``owner`` is the user id that may divide it further."""

    lab: str
    what: str
    owner: int = 0


def start(place: Place, argv: Sequence[str], env: Mapping[str, str], log: IO[bytes]) -> None:
    """Start ``argv`` in the background, with little else than ``env``; ``log`` takes what it says."""
    folders = _make(place)

    def enter() -> None:
        for folder in folders:
            (folder / "cgroup.procs").write_text(str(os.getpid()))

    # Its parent ends at once: whoever starts it must not have to wait for it.
    subprocess.run(
        ["setsid", "--fork", *argv],
        env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", **env},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd="/",
        preexec_fn=enter,  # in the child, which must not be seen outside of its cgroup
        check=True,
    )


def _make(place: Place) -> list[Path]:
    """The cgroup in every hierarchy, given to its owner."""
    made = []
    for hierarchy in traces.hierarchies():
        folder = hierarchy
        for part in ("runkit-lab", place.lab, place.what):
            _pass_controllers(folder)
            folder = folder / part
            folder.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):  # v1: a new one has none, and takes no process
                own, above = folder / name, folder.parent / name
                if own.exists() and not own.read_text().strip() and above.exists():
                    own.write_text(above.read_text())
        for path in (folder, *(folder / name for name in DIVIDED)):
            if path.exists():
                os.chown(path, place.owner, place.owner)
        made.append(folder)
    return made


def _pass_controllers(folder: Path) -> None:
    """v2: what a cgroup has, those below it may have too."""
    control = folder / "cgroup.subtree_control"
    if control.exists():
        have = (folder / "cgroup.controllers").read_text().split()
        missing = set(have) - set(control.read_text().split())
        if missing:
            control.write_text(" ".join(f"+{name}" for name in sorted(missing)))


def answers(address: str, port: int) -> bool:
    """Whether somebody listens there."""
    try:
        with socket.create_connection((address, port), timeout=1):
            return True
    except OSError:
        return False
