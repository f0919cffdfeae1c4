"""Run under mpirun by tests/test_digits.py: trains, and reports on rank 0 what went between the ranks.

``python digits_wire.py OPTION...``: the options of workloads/digits/train.py. The last line printed is JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "workloads" / "digits"))
import train

train.MPI = MPI  # which train.py imports only where it is the program


class Recorder:
    """A communicator that notes how many elements of how many bytes each all-reduce sends."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm = comm
        self.sent: list[tuple[int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.comm, name)

    def Allreduce(self, source: Any, target: Any, op: MPI.Op) -> None:  # noqa: N802 - MPI's own name
        array, size = (
            (target[0], target[1].Get_size()) if isinstance(target, list) else (target, target.itemsize)
        )
        assert array.itemsize == size
        self.sent.append((array.size, size))
        self.comm.Allreduce(source, target, op=op)


def half_sums(ranks: train.Ranks) -> list[bool]:
    """Whether sums of halves come out right: small whole numbers, so that every order of adding is exact."""
    right = []
    for size in (1, 5, 6218, 300_007):  # the longest travels in parts
        values = (np.arange(size) % 31 + ranks.rank).astype(np.float16)
        ranks.add(values)
        expected = np.arange(size) % 31 * ranks.size + sum(range(ranks.size))
        right.append(bool((values == expected).all()))
    return right


def overflow(ranks: train.Ranks) -> tuple[bool, float]:
    """What this rank does when only the gradient of rank 1 is too large for a half."""
    wire = train.HalfWire(65536.0)
    message = wire.pack(np.full(7, 2.0 if ranks.rank == 1 else 1e-3, np.float32))
    ranks.add(message)
    return wire.unpack(message) is None, wire.scale


def main() -> None:
    recorder = Recorder(MPI.COMM_WORLD)
    train.main(sys.argv[1:], recorder)
    ranks = train.Ranks(MPI.COMM_WORLD)
    halves = ranks.comm.allgather(half_sums(ranks))
    overflows = ranks.comm.allgather(overflow(ranks))
    print(json.dumps({"sent": recorder.sent, "halves": halves, "overflows": overflows}), flush=True)


if __name__ == "__main__":
    main()
