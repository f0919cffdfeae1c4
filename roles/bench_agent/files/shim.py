"""The shim: stands between the launcher and one rank, records who the rank is, then becomes it.

usage: python3 -I -S shim.py CELL -- COMMAND [ARGUMENT...]

It runs in the run's folder on the rank's host, writes cells/CELL/logs/HOST/rank-NNNN.json, sends the
rank's output to rank-NNNN.stdout and rank-NNNN.stderr beside it (one file per rank and stream, so that
nothing is interleaved), and executes COMMAND in its own place: the rank keeps the shim's process id.

Standard library only, Python 3.8 or later. Each rank pays for every import: 32 ranks on two cores start
0.3 s later with json and typing than without, hence the few lines of JSON by hand.
"""

from __future__ import annotations

import os
import resource
import sys
import time

# The variables by which launchers tell a process its place, most specific first.
RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "RANK", "SLURM_PROCID")
LOCAL_RANK = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "LOCAL_RANK", "SLURM_LOCALID")
WORLD = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE", "SLURM_NTASKS")
DEVICES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - only a folder of our own is made there


def main() -> None:
    cell, separator, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    if separator != "--" or not command:
        sys.exit("shim.py: usage: shim.py CELL -- COMMAND [ARGUMENT...]")
    with open("host", encoding="utf-8") as stream:
        host = stream.read().strip()
    folder = os.path.join("cells", cell, "logs", host)
    os.makedirs(folder, exist_ok=True)
    rank = _number(RANK) or 0
    stem = os.path.join(folder, "rank-%04d" % rank)
    _write(stem + ".json", _record(host, rank))
    for number, name in ((1, ".stdout"), (2, ".stderr")):
        handle = os.open(stem + name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(handle, number)
        os.close(handle)
    _own_shared_memory()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit("shim.py: %s: %s" % (command[0], error.strerror))


def _own_shared_memory() -> None:
    """Killed ranks leave their segments behind; in a folder of the run the agent finds and removes them."""
    folder = os.path.join(SHARED_MEMORY, "runkit-" + os.environ.get("RUNKIT_RUN", ""))
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if os.stat(folder).st_uid == os.geteuid():
            os.environ.setdefault("OMPI_MCA_btl_vader_backing_directory", folder)
    except OSError:
        pass  # without shared memory there is nothing to leave


def _record(host: str, rank: int) -> dict[str, object]:
    shm = os.statvfs(SHARED_MEMORY) if os.path.isdir(SHARED_MEMORY) else None
    return {
        "schema": "runkit/rank",
        "version": 1,
        "host": host,
        "hostname": os.uname().nodename,
        "rank": rank,
        "local_rank": _number(LOCAL_RANK),
        "world_size": _number(WORLD),
        "pid": os.getpid(),
        "started": round(time.time(), 3),
        "devices": next((os.environ[name] for name in DEVICES if name in os.environ), None),
        "memlock_bytes": _limit(resource.RLIMIT_MEMLOCK),
        "nofile": _limit(resource.RLIMIT_NOFILE),
        "shm_bytes": shm.f_frsize * shm.f_blocks if shm else None,
    }


def _number(names: tuple[str, ...]) -> int | None:
    for name in names:
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return None


def _limit(which: int) -> int | None:
    soft = resource.getrlimit(which)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _write(path: str, record: dict[str, object]) -> None:
    body = ", ".join('"%s": %s' % (key, _json(value)) for key, value in record.items())
    with open(path + ".tmp", "w", encoding="utf-8") as stream:
        stream.write("{%s}\n" % body)
    os.replace(path + ".tmp", path)


def _json(value: object) -> str:
    """None, a number or a text; what is not plain ASCII becomes its UTF-16 escapes."""
    if value is None:
        return "null"
    if not isinstance(value, str):
        return repr(value)
    units = value.encode("utf-16-be", "surrogatepass")
    codes = [units[i] << 8 | units[i + 1] for i in range(0, len(units), 2)]
    return '"%s"' % "".join(chr(c) if 32 <= c < 127 and c not in (34, 92) else "\\u%04x" % c for c in codes)


if __name__ == "__main__":
    main()
