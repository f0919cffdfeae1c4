"""Doing many small pieces of work: each result under its name only when it is whole, on all processors."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from pathlib import Path
from typing import Callable, List, NamedTuple, Sequence

from data_set.files import DataError, explained, remove

_PR_SET_PDEATHSIG = 1
_MOST = 64  # processes; more only wait for the disk


class Task(NamedTuple):
    """A file or folder to make: its name below the set's folder, and what writes it to a path."""

    name: str
    write: Callable[[Path], None]


def do(tasks: Sequence[Task], folder: Path, wanted: Callable[[], bool]) -> None:
    """Make what is not there yet, while it is ``wanted``. Raises DataError with what went wrong first."""
    todo = [task for task in tasks if not (folder / task.name).exists()]
    processes = min(len(os.sched_getaffinity(0)), len(todo), _MOST)
    gc.freeze()  # what the children share stays shared
    read, write = os.pipe()
    children = [_start(todo[index::processes], folder, wanted, read, write) for index in range(processes)]
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        said = stream.readline(1 << 16).decode("utf-8", "replace").strip()  # the end, when all are done
    for child in children if said else ():
        os.kill(child, signal.SIGKILL)  # what the others would do is in vain
    statuses: List[int] = [os.waitpid(child, 0)[1] for child in children]
    if said:
        raise DataError(said)
    if any(statuses):
        raise DataError(f"{folder}: a process was killed, for want of memory maybe; run data again")


def _start(tasks: Sequence[Task], folder: Path, wanted: Callable[[], bool], read: int, write: int) -> int:
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.close(read)
        if os.getppid() == parent:
            _work(tasks, folder, wanted)
            status = 0
    except DataError as error:
        os.write(write, f"{error}\n".encode())
    except OSError as error:
        os.write(write, f"{explained(error)}\n".encode())
    finally:
        if status and isinstance(sys.exc_info()[1], Exception):
            sys.excepthook(*sys.exc_info())
        os._exit(status)


def _work(tasks: Sequence[Task], folder: Path, wanted: Callable[[], bool]) -> None:
    for task in tasks:
        if not wanted():
            raise DataError("the command that wanted it was ended; run data again, it goes on")
        target = folder / task.name
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.name}.new")
        remove(fresh)
        task.write(fresh)
        os.replace(fresh, target)
