"""Tell who computes on this host: ``busy.py LOGIN FOLDER``, the user of runkit and its folder of runs.

Prints a JSON list of sentences, empty where nobody does: about processes that have a GPU's device open, and
a run that holds the lock in FOLDER, where "~" is the home of LOGIN. Of a program only the name is told: its
arguments may hold secrets. Only root sees what others have open. Python 3.8 or later, standard library only.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import re
import stat
import sys

DEVICE = re.compile(r"/dev/(?:nvidia\d+|nvidia-uvm)(?: \(deleted\))?")
# They have GPUs open all the time and compute nothing; their packages and roles restart them where needed.
ATTENDANTS = ("nvidia-persistenced", "nv-fabricmanager", "nv-hostengine", "dcgm-exporter")
MOST = 5  # processes that a sentence names
MOST_BYTES = 4096  # of what the lock says


def main(words: list[str]) -> int:
    """Print what is known."""
    login, folder = words
    print(json.dumps(users("/proc") + run(os.path.join(at_home(folder, login), "lock"))))
    return 0


def users(proc: str) -> list[str]:
    """A sentence about the processes that have a GPU open; none where there is none."""
    found = []
    for pid in sorted(map(int, filter(str.isdigit, os.listdir(proc)))):
        folder = os.path.join(proc, str(pid))
        devices = opened(os.path.join(folder, "fd"))
        if devices and program(folder) not in ATTENDANTS:
            name, user = printable(comm(folder)), printable(owner(folder))
            found.append(f"{name} (process {pid} of {user}) uses {', '.join(devices)}")
    more = [f"and {len(found) - MOST} more do"] if len(found) > MOST else []
    return ["; ".join(found[:MOST] + more)] if found else []


def opened(folder: str) -> list[str]:
    """The devices of GPUs among what a process has open, sorted."""
    found = set()
    for name in listed(folder):
        try:
            target = os.readlink(os.path.join(folder, name))
        except OSError:
            continue  # closed meanwhile
        if DEVICE.fullmatch(target):
            found.add(target.split(" ")[0])
    return sorted(found)


def listed(folder: str) -> list[str]:
    """The names in a folder; none where its process ended, or is somebody else's."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def program(folder: str) -> str:
    """The name of the file that a process runs; a process may call itself anything, but not this."""
    try:
        path = os.readlink(os.path.join(folder, "exe"))
    except OSError:
        return ""
    return os.path.basename(path[: -len(" (deleted)")] if path.endswith(" (deleted)") else path)


def comm(folder: str) -> str:
    """What a process is called."""
    try:
        with open(os.path.join(folder, "comm"), "rb") as stream:
            return os.fsdecode(stream.read(64).rstrip(b"\n")) or "?"
    except OSError:
        return "?"


def owner(path: str) -> str:
    """Whose a file or process is: the name, or the number of one without."""
    try:
        uid = os.stat(path).st_uid
    except OSError:
        return "?"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def printable(text: str) -> str:
    """What a terminal shows as it is."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def run(path: str) -> list[str]:
    """A sentence about the run that holds the lock; none where it is free, or no run was ever here."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return []
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)  # an agent that starts now tries it ten times
    except BlockingIOError:
        return [f"run {printable(holder(os.read(handle, MOST_BYTES)))} works here"]
    finally:
        os.close(handle)
    return []


def holder(text: bytes) -> str:
    """The run that a lock names."""
    try:
        return str(json.loads(text.decode("utf-8", "replace"))["run"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "?"


def at_home(folder: str, login: str) -> str:
    """A folder as LOGIN means it: "~" is that user's home."""
    if folder == "~" or folder.startswith("~/"):
        folder = f"~{login}{folder[1:]}"
    return os.path.expanduser(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
