"""Starting something that outlives us, in a cgroup of its own, which is how it is found again."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import names
import traces


def start(lab: str, what: str, argv: Sequence[str], env: Mapping[str, str], log: IO[bytes]) -> None:
    """Start ``argv`` in the background with ``env`` and no more than a path besides."""
    folders = _make(lab, what)

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


def _make(lab: str, what: str) -> list[Path]:
    """The cgroup ``runkit-lab/LAB/WHAT`` of every hierarchy, given to the lab's user ids."""
    made = []
    for hierarchy in traces.hierarchies():
        folder = hierarchy
        for part in ("runkit-lab", lab, what):
            _pass_controllers(folder)
            folder = folder / part
            folder.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):  # v1: a new one has none, and takes no process
                own, above = folder / name, folder.parent / name
                if own.exists() and not own.read_text().strip() and above.exists():
                    own.write_text(above.read_text())
        if what != "proxy":
            for path in (
                folder,
                *(folder / n for n in ("cgroup.procs", "tasks", "cgroup.subtree_control", "cgroup.threads")),
            ):
                if path.exists():
                    os.chown(path, names.UID_BASE, names.UID_BASE)
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
