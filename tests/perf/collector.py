"""What reading logs costs: beside ``grep -c`` on the same bytes and core, and for a thousand small logs.

The logs are made for it in a temporary folder. Costs are seconds of the processor, which other work on the
machine disturbs less than those of the clock; the clock's stand beside them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median
from typing import NamedTuple

from figures import Figure

ROOT = Path(__file__).resolve().parents[2]
MB = 1_000_000
NAME = "gpu8_fp32_bs256.log"

# What frameworks print between two records, in words of our own
JUNK = (
    "W0727 12:58:53.{n:06d}  9337 kernels.cc:140] Warning: a tensor without dimensions is taken for 1x1; "
    "later releases refuse it. To be rid of this message, hand a list to the constructor of the layer above.",
    "2031-07-27 12:59:01,{n:06d} - WARNING - the queue of worker {n} is empty; consider more than 4 of them",
    "INFO:tensorflow:restored resnet50/conv{n}/kernel into place, dtype float32, shape (3, 3, 256, 256)",
    "node-1:{n} allocator: {n}.5 MiB reserved, {n} bytes handed out in 17 blocks, fragmentation 0.03",
    " 30%|███       | {n}/9999999 [04:50<9:42, 1.4it/s]\r 31%|███       | {n}/9999999 [04:51<9:41, 1.4it/s]",
    "W0801 05:45:36.{n:06d} 140 deprecation.py:323] From /opt/model/train.py:{n}: this name is deprecated.",
)
TENSORFLOW = "DLL 2031-11-24 04:11:31.352262 - (0, {n}) total_ips : 9360.806356242965"
PADDLE = (
    "2031-02-05 04:25:54 [INFO]\t[TRAIN] epoch: 1, iter: {n}/99999999, loss: 2.2272, lr: 0.009820, "
    "batch_cost: 1.5326, reader_cost: 0.36675, ips: 2.6100 samples/sec | ETA 00:04:58"
)
NEAR_MISS = "2031-02-05 04:25:54 [INFO]\t[TRAIN] epoch: 1, iter: {n}/99999999, loss: 2.2272, ips: 2.6 sam"


class Cost(NamedTuple):
    """Of a process: seconds of the processor and of the clock, and the bytes it held at its peak."""

    cpu: float
    wall: float
    peak: int


def large_logs(args: argparse.Namespace) -> list[Figure]:
    """Logs with one record in a thousand lines, on one core, in turns with grep."""
    made: list[Figure] = []
    for word, record in (("total_ips", TENSORFLOW), ("ips:", PADDLE)):
        with _log(args.megabytes * MB, _with_records(record, JUNK)) as path:
            greps, costs = [], []
            for _ in range(args.pairs):
                greps.append(_run(["grep", "-c", word, str(path)], cores=1))
                costs.append(_run(_parse(path), cores=1))
            what = f"{path.stat().st_size / MB:.0f} MB, one line in 1,000 a record with `{word}`"
            made += _beside_grep(what, path.stat().st_size, costs, greps)
    return made


def other_logs(args: argparse.Namespace) -> list[Figure]:
    """Logs that make more work; there is no limit."""
    coloured = tuple(f"\x1b[32m{line}\x1b[0m" for line in JUNK)
    kinds = {
        "every line a record": _with_records(PADDLE, ()),
        "nearly every line nearly a record": _with_records(PADDLE, (NEAR_MISS,)),
        "one line in 20 nearly a record": _with_records(PADDLE, (*3 * JUNK, NEAR_MISS)),
        "every line in colour": _with_records(PADDLE, coloured),
        "a NUL byte in every tenth line": _with_records(PADDLE, (*9 * JUNK[:1], "\0" + JUNK[1])),
        "Chinese in GBK": _with_records(PADDLE, (*JUNK[:4], "显存不足，请减小批大小 {n}"), "gbk"),
    }
    made = []
    for kind, lines in kinds.items():
        with _log(args.megabytes * MB // 20, lines) as path:
            cost = _run(_parse(path), cores=1)
            text = f"{path.stat().st_size / MB / cost.cpu:.0f} MB/s, {cost.peak / MB:.0f} MB of memory"
            made.append(Figure(f"parse, one core: {args.megabytes // 20} MB, {kind}", text))
    return made


def many_logs(args: argparse.Namespace) -> list[Figure]:
    """A folder of a thousand logs of 100 kB, and one of a few large ones, on one core and on two."""
    made = []
    folders = {"1,000 logs of 100 kB": (1000, 100_000), "8 logs of 50 MB": (8, 50 * MB)}
    for what, (count, size) in folders.items():
        with tempfile.TemporaryDirectory() as name:
            lines = _with_records(PADDLE, JUNK, every=50)
            for number in range(count):
                _write(Path(name) / f"{number:04}_{NAME}", size, lines)
            one, two = _run(_parse(Path(name)), cores=1), _run(_parse(Path(name)), cores=2)
        text = f"{two.wall:.2f} s by the clock, {two.cpu:.2f} of the processor (one core: {one.wall:.2f} s)"
        limit = ("5 s", two.wall <= 5) if count == 1000 else ()
        made.append(Figure(f"parse, two cores: {what}", text, *limit))
    return made


def _beside_grep(what: str, size: int, costs: Sequence[Cost], greps: Sequence[Cost]) -> Iterator[Figure]:
    speeds = sorted(size / MB / cost.cpu for cost in costs)
    spread = f"{speeds[0]:.0f} to {speeds[-1]:.0f}, n={len(speeds)}"
    spent = (
        f"{median(cost.cpu for cost in costs):.2f} s, {median(cost.wall for cost in costs):.2f} by the clock"
    )
    speed = median(speeds)
    text = f"{speed:.0f} MB/s ({spread}; {spent})"
    yield Figure(f"parse, one core: {what}", text, "200 MB/s", speed >= 200)
    ratios = sorted(cost.cpu / grep.cpu for cost, grep in zip(costs, greps, strict=True))
    ratio = median(ratios)
    text = f"{ratio:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}; grep {median(one.cpu for one in greps):.2f} s)"
    yield Figure("the same against `LC_ALL=C grep -c` of that word", text, "4, aim 3", ratio <= 4)
    peak = max(cost.peak for cost in costs)
    yield Figure("the same: memory at its peak", f"{peak / MB:.0f} MB", "150 MB", peak <= 150 * MB)


# --- logs ----------------------------------------------------------------------------------


def _with_records(
    record: str, junk: Sequence[str], encoding: str = "utf-8", every: int = 1000
) -> Callable[[int], bytes]:
    """Give what makes the n-th thousand lines: the last of each ``every`` a record, or all without junk."""
    random = Random(1)
    lines = [random.choice(junk).format(n=random.randrange(10**6)) for _ in range(20 * every) if junk]
    parts = [
        "".join(line + "\n" for line in lines[at : at + every - 1]) for at in range(0, len(lines), every)
    ]

    def block(number: int) -> bytes:
        first = number * 1000
        made = [random.choice(parts) + record.format(n=n) for n in range(first, first + 1000, every)]
        return ("\n".join(made) + "\n").encode(encoding)

    return (
        block
        if junk
        else lambda n: "".join(record.format(n=1000 * n + k) + "\n" for k in range(1000)).encode()
    )


def _write(path: Path, size: int, block: Callable[[int], bytes]) -> None:
    with path.open("wb") as stream:
        number = 0
        while stream.tell() < size:
            stream.write(block(number))
            number += 1


@contextmanager
def _log(size: int, block: Callable[[int], bytes]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / NAME
        _write(path, size, block)
        yield path


# --- processes -----------------------------------------------------------------------------


def _parse(path: Path) -> list[str]:
    return [sys.executable, "-m", "runner", "parse", str(path), "--json"]


def _run(argv: Sequence[str], cores: int) -> Cost:
    """Run a command on some cores; the peak is that of the largest of its processes."""
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "LC_ALL": "C"}
    began = time.monotonic()
    argv = ["taskset", "-c", ",".join(map(str, allowed)), *argv]
    with tempfile.TemporaryFile() as said:  # grep stops at the first line where nobody would see its count
        process = subprocess.Popen(argv, env=env, stdout=said)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, argv
    return Cost(used.ru_utime + used.ru_stime, time.monotonic() - began, used.ru_maxrss * 1024)
