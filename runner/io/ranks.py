"""One log of many ranks, a file each: which files are one run, by the names that launchers give them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from runner.io.logs import Log
from runner.model import Line, Problem

# A row per launcher: what the files of a run have in common, the rank, and the stream where the name says it.
# CELL_FILE is that of this project, logs/HOST/rank-0000.stdout.
_NAMES = [
    re.compile(pattern, re.ASCII | re.DOTALL)
    for pattern in (
        # Open MPI from 3.1 on, DIR/JOB/rank.0/stdout; Horovod's horovodrun, DIR/rank.0/stdout
        r"(?P<run>(?:.*/)?)rank\.(?P<rank>\d{1,9})/(?P<stream>stdout|stderr|stddiag)",
        # Open MPI 5, --output file=FILE and --output-filename FILE: FILE.prterun-HOST-PID@1.0.out
        r"(?P<run>.+@\d{1,9})\.(?P<rank>\d{1,9})\.(?P<stream>out|err)",
        # Open MPI before 3.1, FILE.1.0: the job, which is always 1, and the rank; no version such as 2.1.0
        r"(?P<run>(?:.*[^\d.])?\.1)\.(?P<rank>\d{1,9})",
        # torchrun --log-dir: DIR/ID/attempt_0/0/stdout.log
        r"(?P<run>(?:.*/)?attempt_\d{1,9}/)(?P<rank>\d{1,9})/(?P<stream>stdout|stderr)\.log",
        # paddle.distributed.launch --log_dir: DIR/workerlog.0
        r"(?P<run>(?:.*/)?)workerlog\.(?P<rank>\d{1,9})",
    )
]
CELL_FILE = re.compile(r"(?P<run>(?:.*/)?)[^/]+/rank-(?P<rank>\d{1,9})\.(?P<stream>stdout|stderr)", re.ASCII)
_STREAMS = {"out": "stdout", "err": "stderr"}


class RankFile(NamedTuple):
    """The file of a rank: ``stream`` is None where it holds both."""

    rank: int
    stream: str | None
    log: Log


class RankLog:
    """The files of a run's ranks as one log: rank by rank, stdout before stderr.

    Rank and stream come from a file's name where a line has no tag; line numbers count within
    each file. ``sha256`` is of the files' SHA-256 in this order, hexadecimal, a line feed behind each.
    """

    def __init__(self, files: Iterable[RankFile], name: str) -> None:
        self.files = sorted(files, key=lambda file: (file.rank, file.stream == "stderr", file.log.name))
        self.name = name
        self.sha256: str | None = None
        self.problems: tuple[Problem, ...] = ()

    @property
    def size(self) -> int | None:
        """Bytes of all files together: see Log."""
        sizes = [file.log.size for file in self.files]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def __iter__(self) -> Iterator[Line]:
        return self._lines(iter)

    def holding(self, words: Sequence[str]) -> Iterator[Line]:
        """Yield the lines that hold one of ``words``, and perhaps others: see Log."""
        return self._lines(lambda log: log.holding(words))

    def _lines(self, read: Callable[[Log], Iterator[Line]]) -> Iterator[Line]:
        digest, self.problems = hashlib.sha256(), ()
        for rank, stream, log in self.files:
            for line in read(log):
                tagged = line.rank is not None
                yield line if tagged else Line(line.number, line.text, rank, line.stream or stream)
            digest.update(f"{log.sha256}\n".encode())
            self.problems += tuple(Problem(p.code, p.line, f"{log.name}: {p.detail}") for p in log.problems)
        self.sha256 = digest.hexdigest()


def rank_file(log: Log, patterns: Iterable[re.Pattern[str]]) -> tuple[str, RankFile] | None:
    """What the log of a rank has in common with those of the others, and its rank; None for any other."""
    for pattern in patterns:
        match = pattern.fullmatch(log.name)
        if match is not None:
            stream = match.groupdict().get("stream")
            return match["run"], RankFile(int(match["rank"]), _STREAMS.get(stream or "", stream), log)
    return None


def by_run(logs: Iterable[Log], name: str) -> list[Log | RankLog]:
    """Put the logs of the ranks of a run together, where its first one stands.

    Such a log is named after the folder of its files; ``name`` is that of the folder that all logs lie in.
    Where two files claim to be the same rank's, none are put together.
    """
    found: dict[str | int, tuple[list[Log], list[RankFile]]] = {}
    for number, log in enumerate(logs):
        run, file = rank_file(log, (*_NAMES, CELL_FILE)) or (number, None)
        of_run, files = found.setdefault(run, ([], []))
        of_run.append(log)
        files += [file] if file else []
    made: list[Log | RankLog] = []
    for run, (of_run, files) in found.items():
        one = len(of_run) > 1 and len({(file.rank, file.stream) for file in files}) == len(files)
        made += [RankLog(files, str(run).strip("/") or name)] if one else of_run
    return made
