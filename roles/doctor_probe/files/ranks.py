"""One rank on each host: measures the way to every other host, pair by pair, then all of them together.

usage: mpirun ... PYTHON -c TEXT SLOT_S DEADLINE_S

Rounds of disjoint pairs, as a round-robin tournament has them. A round is over when all pairs are through,
at the latest after SLOT_S: a host that does not answer costs the others that much in each round and no more.
Each writes what it saw as lines of JSON at once, so that what the others saw is not lost with it. At
DEADLINE_S the kernel ends it, whatever it waits for.
"""

import contextlib
import json
import os
import signal
import sys
import time
from typing import Any, Dict, List, Optional

MARK = "runkit-doctor "
LEAST, MOST = 1 << 16, 1 << 23  # bytes of a message
LONG_S = 0.01  # a message that takes so long says enough: the next one is no larger
PINGS = 200
ENOUGH = 10  # messages that are no larger than the one before
TOGETHER = 1 << 16  # numbers of four bytes that all add up; at 10 Mbit/s three hosts need a second for it
TRIES = 3
GATHER_S = 0.001
LOOK_S, LOOKS = 0.2, 10  # a rank that is stopped each time that it is looked at stands still
Seen = Dict[str, Any]


def say(event: str, **fields: Any) -> None:
    """One line in one write, that it is not mixed with others: pipes and terminals keep 2 kB together."""
    os.write(1, (MARK + json.dumps(dict(fields, event=event)) + "\n").encode())


def watched(rank: int, deadline_s: float) -> Optional[int]:
    """Start a process that tells if this one stands still before all have met, as none of the others can.

    It ends when this one does, at the deadline, or when it is told to. None where it cannot be started.
    """
    parent = os.getpid()
    try:
        watcher = os.fork()
    except OSError:
        return None
    if watcher:
        return watcher
    try:
        signal.setitimer(signal.ITIMER_REAL, deadline_s)  # a child has none of its parent's
        still = 0
        while os.getppid() == parent and still < LOOKS:
            time.sleep(LOOK_S)
            with open("/proc/%d/stat" % parent) as stream:
                state = stream.read().rpartition(")")[2].split()[0]
            still = still + 1 if state in "TtD" else 0
        if still == LOOKS:
            say("stuck", rank=rank, state=state)
    finally:  # whatever comes, it does not go on as a rank
        os._exit(0)


def partner(rank: int, turn: int, ranks: int) -> Optional[int]:
    """Whom a rank meets in a round: everyone once, in as many rounds as there are others.

    With an odd number of ranks it is one round more, and in each somebody waits (None).
    """
    last = ranks + ranks % 2 - 1
    other = turn if rank == last else (2 * turn - rank) % last
    other = last if other == rank else other
    return other if other < ranks else None


class Late(Exception):
    """The other one did not do its part in time."""


class Pair:
    """One meeting with another rank, over by ``end``."""

    def __init__(self, comm: Any, peer: int, tag: int, end: float) -> None:
        self.comm, self.peer, self.tag, self.end = comm, peer, tag, end

    def send(self, block: Any) -> None:
        wait(self.comm.Isend(block, self.peer, self.tag), self.end, block)

    def receive(self, block: Any) -> int:
        """The number of bytes that came."""
        return wait(self.comm.Irecv(block, self.peer, self.tag), self.end, block)


_kept: List[Any] = []  # a buffer that MPI may still write to must not be freed


def wait(request: Any, end: float, block: Any = None) -> int:
    status = MPI.Status()
    while not request.Test(status):
        if time.monotonic() > end:
            _kept.append((request, block))
            raise Late
        os.sched_yield()
    return int(status.Get_count(MPI.BYTE))


def pattern(rank: int) -> Any:
    """What a rank sends first: bytes that are its own."""
    return ((numpy.arange(LEAST, dtype=numpy.uint32) * 7 + rank) % 251).astype(numpy.uint8)


def pings(pair: Pair, until: float, seen: Seen) -> None:
    """Half of the shortest round trip, in seconds."""
    best, more, word = 60.0, numpy.ones(1, numpy.uint8), numpy.empty(1, numpy.uint8)
    for _ in range(PINGS):
        began = time.monotonic()
        pair.send(more)
        pair.receive(word)
        best = min(best, time.monotonic() - began)
        seen["latency_s"] = best / 2
        if time.monotonic() > until:
            break
    pair.send(numpy.zeros(1, numpy.uint8))


def pongs(pair: Pair) -> None:
    word = numpy.ones(1, numpy.uint8)
    while word[0]:
        pair.receive(word)
        if word[0]:
            pair.send(word)


def stream(pair: Pair, block: Any, until: float, seen: Seen) -> None:
    """Messages one after the other, each acknowledged: the best rate, in bytes per second."""
    size, left, word = LEAST, ENOUGH, numpy.empty(1, numpy.uint8)
    while left:
        began = time.monotonic()
        pair.send(block[:size])
        pair.receive(word)
        took = time.monotonic() - began
        seen["bytes_s"] = max(seen.get("bytes_s", 0.0), size / took)
        larger = size if took > LONG_S else min(MOST, 2 * size)
        size, left = larger, left - (larger == size)
        if time.monotonic() > until:
            break
    pair.send(block[:0])


def drink(pair: Pair, into: Any, seen: Seen) -> None:
    """Take messages until an empty one comes; of the first, whether its bytes are those that were sent."""
    word, expected = numpy.ones(1, numpy.uint8), pattern(pair.peer)
    while True:
        size = pair.receive(into)
        if not size:
            return
        seen.setdefault("right", size == LEAST and bool((into[:size] == expected).all()))
        pair.send(word)


def meet(pair: Pair, out: Any, began: float, seen: Seen) -> None:
    """The lower rank begins; then both change places. A slow one may not come to the end of it."""
    slot, into = pair.end - began, numpy.zeros(MOST, numpy.uint8)  # its own: what is late may still come
    word = numpy.ones(1, numpy.uint8)
    pair.send(word)
    pair.receive(word)
    seen["met"] = True
    if pair.comm.Get_rank() < pair.peer:
        pings(pair, began + 0.3 * slot, seen)
        stream(pair, out, began + 0.6 * slot, seen)
        drink(pair, into, seen)
    else:
        pongs(pair)
        drink(pair, into, seen)
        stream(pair, out, began + 0.9 * slot, seen)


def gather(comm: Any, end: float) -> None:
    """Go on together with all others, or at ``end`` without those that are not there yet."""
    barrier = comm.Ibarrier()
    while not barrier.Test() and time.monotonic() < end:
        time.sleep(GATHER_S)  # others may still measure on this processor
    _kept.append((barrier, None))


def together(comm: Any, end: float) -> Dict[str, Any]:
    """Add up numbers of all ranks: the shortest time of some, in seconds, and whether the sum was right."""
    ranks = comm.Get_size()
    mine = numpy.full(TOGETHER, comm.Get_rank() + 1, numpy.float32)
    best, right = 1e9, True
    began = time.monotonic()
    for _ in range(TRIES):
        summed = numpy.zeros_like(mine)
        before = time.monotonic()
        wait(comm.Iallreduce(mine, summed), end, (mine, summed))
        best = min(best, time.monotonic() - before)
        right = right and bool((summed == ranks * (ranks + 1) // 2).all())
        late = numpy.array([3 * (time.monotonic() - began) > end - began], numpy.float32)
        some = numpy.zeros_like(late)
        wait(comm.Iallreduce(late, some), end, (late, some))
        if some[0]:  # that all may end alike, one that has no time for another try ends it
            break
    return {"seconds": best, "right": right, "bytes": mine.nbytes}


def main(slot: float, watcher: Optional[int] = None) -> None:
    comm = MPI.COMM_WORLD
    rank, ranks = comm.Get_rank(), comm.Get_size()
    out = numpy.tile(pattern(rank), MOST // LEAST)
    turns = ranks - 1 + ranks % 2
    gather(comm, float("inf"))  # the deadline ends it
    if watcher:  # from here on the others see who does not answer
        os.kill(watcher, signal.SIGKILL)
        os.waitpid(watcher, 0)
    for turn in range(turns):
        began, peer = time.monotonic(), partner(rank, turn, ranks)
        if peer is not None:
            seen: Seen = {"met": False}
            with contextlib.suppress(Late):
                meet(Pair(comm, peer, turn, began + 0.95 * slot), out, began, seen)
            say("pair", rank=rank, peer=peer, **seen)
        gather(comm, began + slot)
    end = time.monotonic() + 4 * slot
    try:
        say("all", rank=rank, **together(comm, end))
        say("end", rank=rank)
        wait(comm.Ibarrier(), end)
        MPI.Finalize()
    except Late:
        say("end", rank=rank)
        time.sleep(3600)  # until it is ended: an end of its own would end the others


if __name__ == "__main__":
    signal.setitimer(signal.ITIMER_REAL, float(sys.argv[2]))
    own = int(os.environ["OMPI_COMM_WORLD_RANK"])
    say("here", host=os.environ.get("RUNKIT_DOCTOR_HOST"), rank=own)
    watching = watched(own, float(sys.argv[2]))
    try:  # after the line that says that the host has come this far
        import numpy
        from mpi4py import MPI
    except (ImportError, OSError, RuntimeError) as error:  # the last where libmpi does not load
        say("fails", rank=own, why=" ".join(str(error).split())[:500])
        raise
    main(float(sys.argv[1]), watching)
