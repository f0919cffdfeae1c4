"""What stands in the way of installing packages: ``state.py SECONDS PATH...``.

Waits SECONDS at most for the locks of the packages. Prints a JSON object: ``held``, who has a lock then;
``readonly``, the folders that are always written to and mounted read-only; ``free``, per PATH the MiB that
are free there; ``half``, the packages that dpkg calls half installed or unpacked only; ``age_s``, how old
apt's lists of packages are. Python 3.8 or later, standard library only.
"""

import fcntl
import json
import os
import re
import struct
import sys
import time

LOCKS = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
)
STATUS = "/var/lib/dpkg/status"
LISTS, STAMP = "/var/lib/apt/lists", "/var/lib/apt/periodic/update-success-stamp"
WRITTEN = ("/etc", "/var/lib")  # not /usr: apt can be told to mount it for writing
FOREVER_S = 1 << 31
UPDATES = "/var/lib/dpkg/updates"
UNDONE = re.compile(r"^Status: \S+ \S+ (?:unpacked|half-\S+)$", re.M)
WHERE_LOCK = "hhqqi"  # struct flock of Linux on 64 bits: type, whence, start, length, pid


def holder(path):
    """Return who holds a lock on ``path``; "" where nobody does."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        asked = struct.pack(WHERE_LOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(WHERE_LOCK, fcntl.fcntl(handle, fcntl.F_GETLK, asked))
    finally:
        os.close(handle)
    return "" if kind == fcntl.F_UNLCK else f"{name(pid)} (process {pid})"


def name(pid):
    """Return what a process is called; of its arguments nothing, they may have secrets."""
    try:
        with open(f"/proc/{pid}/comm") as stream:
            return stream.read().strip()
    except OSError:
        return "a process"


def held(seconds):
    """Return who holds a lock when nobody lets go for ``seconds``."""
    end = time.monotonic() + seconds
    while True:
        holders = [each for each in map(holder, LOCKS) if each]
        if not holders or time.monotonic() >= end:
            return holders[0] if holders else ""
        time.sleep(min(1.0, max(0.05, end - time.monotonic())))


def free(path):
    """Return the MiB that are free where ``path`` is or will be; 0 where no other file has room."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    found = os.statvfs(path)
    return 0 if found.f_files and not found.f_favail else found.f_bavail * found.f_frsize >> 20


def readonly():
    """Return the folders of WRITTEN that nobody can write to, however they came to be mounted so."""
    return [path for path in WRITTEN if os.statvfs(path).f_flag & os.ST_RDONLY]


def half():
    """Return the packages whose installation was begun and not ended."""
    try:
        with open(STATUS, encoding="utf-8", errors="replace") as stream:
            parts = stream.read().split("\n\n")
    except OSError:
        return []
    found = [re.search(r"^Package: (.*)$", part, re.M) for part in parts if UNDONE.search(part)]
    journal = [each for each in os.listdir(UPDATES) if each.isdigit()] if os.path.isdir(UPDATES) else []
    return sorted({each.group(1) for each in found if each}) or (["dpkg's journal"] if journal else [])


def age_s():
    """Return the seconds since the lists were read as a whole; FOREVER_S where there are none."""
    try:
        there = any(each.endswith("Release") for each in os.listdir(LISTS))
        return int(time.time() - os.stat(STAMP).st_mtime) if there else FOREVER_S
    except OSError:
        return FOREVER_S


def main(seconds, *paths):
    """Wait, look, and tell."""
    found = {"held": held(float(seconds)), "readonly": readonly(), "half": half(), "age_s": age_s()}
    print(json.dumps({**found, "free": {path: free(path) for path in paths}}))


if __name__ == "__main__":
    main(*sys.argv[1:])
