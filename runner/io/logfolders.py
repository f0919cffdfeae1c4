"""What a user names as logs: a file, an archive, or a folder of both; and the logs of one cell of a run."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from runner.errors import UsageError
from runner.io.archives import members
from runner.io.logs import Log
from runner.io.ranks import CELL_FILE, RankLog, by_run, rank_file
from runner.io.sources import Refused, place, unreadable
from runner.model import Line
from runner.names import printable

FILES_LIMIT = 10_000  # files of one folder
DEPTH_LIMIT = 32  # folders within folders


def walk(source: Path) -> list[Log | RankLog]:
    """List the logs that ``source`` names: itself, those in an archive, or every regular file below a folder.

    Files and archives below a folder come by name, what is in an archive in its order; the files of a run's
    ranks are one log. Hidden files are passed over, and so are links and what is no regular file below a
    folder. Raises UsageError where ``source`` cannot be read or holds too much; what else cannot be read
    raises it once it is iterated.
    """
    if not source.is_dir():
        return by_run(_logs(source, source.name, ""), printable(source.name))
    found: list[Log] = []
    for name in _files(source):
        try:
            found += _logs(source / name, name, f"{name}/")
        except UsageError as error:
            found.append(Log(Refused(error), printable(name)))
    return by_run(found, printable(source.resolve().name))


class CellLog(RankLog):
    """The logs of one cell of a run: ``folder/logs/<host>/rank-NNNN.stdout`` and ``.stderr``.

    What NCCL wrote into files of its own, ``folder/logs/<host>/nccl.<host>.<pid>``, follows, of no rank.
    """

    def __init__(self, folder: Path) -> None:
        logs = folder / "logs"
        names = _files(logs) if logs.is_dir() else []
        found = (rank_file(Log(logs / name, printable(name)), (CELL_FILE,)) for name in names)
        super().__init__([entry[1] for entry in found if entry], printable(folder.name))
        self.nccl = [Log(logs / name, printable(name)) for name in names if "/nccl." in name]

    def _lines(self, read: Callable[[Log], Iterator[Line]]) -> Iterator[Line]:
        yield from super()._lines(read)
        for log in self.nccl:
            yield from read(log)


def _logs(path: Path, name: str, prefix: str) -> list[Log]:
    """The log of that name, or those in the archive, their names behind ``prefix``."""
    inside = members(path)
    if inside is None:
        return [Log(path, printable(name))]
    return [Log(source, printable(prefix) + member) for member, source in inside]


def _files(folder: Path) -> list[str]:
    """The paths below ``folder`` of every regular file that is not hidden, by name."""
    found: list[str] = []
    for path, folders, files in os.walk(folder, onerror=_refuse):
        here = Path(path)
        folders[:] = [name for name in folders if not name.startswith(".")]
        regular = (name for name in files if not name.startswith(".") and _is_file(here / name))
        found += [(here / name).relative_to(folder).as_posix() for name in islice(regular, FILES_LIMIT + 1)]
        if len(found) > FILES_LIMIT or len(here.relative_to(folder).parts) > DEPTH_LIMIT:
            limits = f"more than {FILES_LIMIT} files or {DEPTH_LIMIT} levels"
            raise UsageError(f"{place(folder)}: {limits}; name a folder that holds only logs")
    return sorted(found)


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:  # it went away meanwhile
        return False


def _refuse(error: OSError) -> None:
    raise unreadable(printable(os.fsdecode(error.filename)), error) from error
