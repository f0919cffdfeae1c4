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

# What is started enters its cgroup by itself, says so on its standard input, and is never seen outside. Who
# waits for it stays outside: a cgroup of v2 that is divided takes no process.
ENTER = """\
again=$1 folders=$2
shift 2
while (
    for folder in $folders; do echo 0 >"$folder/cgroup.procs" || exit; done
    echo >&0
    exec "$@" </dev/null
); [ $? = "$again" ]; do exec 0<>/dev/null; done
"""


@dataclass(frozen=True, slots=True)
class Place:
    """The cgroup ``runkit-lab/LAB/WHAT``; ``owner`` is the user id that may divide it further."""

    lab: str
    what: str
    owner: int = 0


def start(
    place: Place, argv: Sequence[str], env: Mapping[str, str], log: IO[bytes], again: int | None = None
) -> None:
    """Start ``argv`` in the background, with little else than ``env``; ``log`` takes what it says.

    When it ends with status ``again`` it is started once more, in the same place.
    """
    folders = _make(place)

    words = ["sh", "-c", ENTER, "sh", str(again), " ".join(map(str, folders)), *argv]
    read, write = os.pipe()
    with os.fdopen(read, "rb") as entered, os.fdopen(write, "wb") as stdin:
        # Its parent ends at once: whoever starts it must not have to wait for it.
        subprocess.run(
            ["setsid", "--fork", *words],
            env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", **env},
            stdin=stdin,
            stdout=log,
            stderr=log,
            cwd="/",
            check=True,
        )
        stdin.close()
        entered.read(1)  # or nothing, where it ended before


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
