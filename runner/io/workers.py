"""Work on many things on all cores: a process per core, results in order.

The processes are copies of this one, made where they are worth it. They end with it, however it ends: an
error or an interrupt here ends them, and one whose parent is gone ends by itself.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from runner.errors import RunkitError

if TYPE_CHECKING:
    from concurrent.futures import Future

_T = TypeVar("_T")
_R = TypeVar("_R")

SMALL = 8 << 20  # bytes that one process has done with before others could help
AHEAD = 4  # things per process that are begun before the first of them is asked for


def in_order(work: Callable[[_T], _R], things: Sequence[_T], sizes: Sequence[int | None]) -> Iterator[_R]:
    """Yield ``work(thing)`` for each, in order; what it raises is raised here, in its turn.

    ``sizes`` are the bytes of each thing, None where only this process should work on it. What pays is done
    by other processes, so work, things and results must pickle.
    """
    processes = min(len(os.sched_getaffinity(0)), len(things))
    if processes < 2 or None in sizes or sum(size or 0 for size in sizes) < SMALL:
        return map(work, things)
    return _shared(work, things, processes)


def _shared(work: Callable[[_T], _R], things: Sequence[_T], processes: int) -> Iterator[_R]:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    copies = multiprocessing.get_context("fork")  # nothing is imported anew
    with ProcessPoolExecutor(processes, copies, _begin) as pool:
        waiting: deque[Future[_R]] = deque()
        finished = False
        try:
            for thing in things:
                waiting.append(pool.submit(work, thing))
                if len(waiting) >= AHEAD * processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
            finished = True
        except BrokenProcessPool as error:
            text = "a process that was reading was ended from outside, perhaps for want of memory"
            raise RunkitError(f"{text}; run again, with fewer files at a time") from error
        finally:
            if not finished:  # an error, an interrupt, or nobody wants the rest
                for process in multiprocessing.active_children():
                    process.terminate()


def _begin() -> None:
    """Begin a process: an interrupt from the keyboard is its parent's business, whose end is its own."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    import multiprocessing
    from multiprocessing.connection import wait

    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
