"""What a user names as logs: a file, or a folder of them; and the logs of one cell of a run."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from runner.errors import UsageError
from runner.io.logs import Log
from runner.io.sources import place, unreadable
from runner.model import Line, Problem
from runner.names import printable

FILES_LIMIT = 10_000  # files of one folder
DEPTH_LIMIT = 32  # folders within folders

_RANK_FILE = re.compile(r"(?:.*/)?rank-(\d{1,9})\.(stdout|stderr)", re.ASCII | re.DOTALL)


class CellLog:
    """The logs of one cell of a run: ``folder/logs/<host>/rank-NNNN.stdout`` and ``.stderr``.

    Iterate once: rank by rank, stdout before stderr. Rank and stream come from the file names, line numbers
    count within each file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: tuple[Problem, ...] = ()

    def __iter__(self) -> Iterator[Line]:
        found = []
        for log in walk(self.folder / "logs"):
            match = _RANK_FILE.fullmatch(log.name)
            if match is not None:
                found.append((int(match[1]), match[2] == "stderr", log.name, log))
        for rank, is_stderr, name, log in sorted(found, key=lambda entry: entry[:3]):
            stream = "stderr" if is_stderr else "stdout"
            for line in log:
                yield Line(line.number, line.text, rank, stream)
            self.problems += tuple(Problem(p.code, p.line, f"{name}: {p.detail}") for p in log.problems)


def walk(source: Path) -> list[Log]:
    """List the logs that ``source`` names: itself, or every regular file below a folder, by name.

    Below a folder, hidden files, links and what is no regular file are passed over. Raises UsageError where
    a folder cannot be read or holds too much.
    """
    if not source.is_dir():
        return [Log(source, printable(source.name))]
    found: list[Log] = []
    for folder, folders, files in os.walk(source, onerror=_refuse):
        here = Path(folder)
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = here / name
            if not name.startswith(".") and stat.S_ISREG(path.lstat().st_mode):
                found.append(Log(path, printable(path.relative_to(source).as_posix())))
        if len(found) > FILES_LIMIT or len(here.relative_to(source).parts) > DEPTH_LIMIT:
            limits = f"more than {FILES_LIMIT} files or {DEPTH_LIMIT} levels"
            raise UsageError(f"{place(source)}: {limits}; name a folder that holds only logs")
    return sorted(found, key=lambda log: log.name)


def _refuse(error: OSError) -> None:
    raise unreadable(Path(os.fsdecode(error.filename)), error) from error
