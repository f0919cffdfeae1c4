"""Weights to start from: archives are unpacked, other files copied.

What an archive holds lies in a folder called as the archive, whatever the one folder at its top is called, if
it has one: so PaddleSeg unpacks what it fetches (paddleseg/utils/download.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Iterator, List, Mapping, Optional

from data_set import archives
from data_set.archives import Piece
from data_set.files import DataError, is_safe, shown
from data_set.work import Task

FLAT = False
SYNTHETIC: Optional[Dict[str, int]] = None  # nobody can make up what a network has learnt
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".zip")


def needed(_counts: Mapping[str, int]) -> List[str]:
    """No archives but those that the workload lists."""
    return []


def tasks(sources: Mapping[str, Path], counts: Mapping[str, int], folder: Path) -> Iterator[Task]:
    """What is to be made of the archives: a file for each of theirs."""
    found = [task for path in sources.values() for task in _tasks(path, folder)]
    if len(found) != counts.get("files", len(found)):
        raise DataError(f"weights: {len(found)} files, must be {counts['files']}; get the archives again")
    yield from found


def _tasks(path: Path, folder: Path) -> Iterator[Task]:
    suffix = next((each for each in _ARCHIVES if path.name.endswith(each)), None)
    if suffix is None:
        yield Task(path.name, Piece(path, path.name, 0, path.stat().st_size).copy)
        return
    pieces = list(archives.pieces(archives.uncompressed(path, folder)))
    top = pieces[0].name.partition("/")[0] + "/" if pieces else ""
    start = len(top) if all(piece.name.startswith(top) for piece in pieces) else 0
    for piece in pieces:
        if not is_safe(piece.name):
            raise DataError(f"{path}: {shown(piece.name)} is not a plain relative name; get it again")
        yield Task(f"{path.name[: -len(suffix)]}/{piece.name[start:]}", piece.copy)


def pretend(_sample: Path, _counts: Mapping[str, int]) -> Iterator[Task]:
    """Nothing."""
    return iter(())


def count(folder: Path) -> Dict[str, int]:
    """Files that are there."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {"files": sum(1 for _ in files)}
