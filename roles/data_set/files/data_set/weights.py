"""Weights to start from: archives are unpacked, other files copied."""

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
    found = [Task(piece.name, piece.copy) for path in sources.values() for piece in _pieces(path, folder)]
    if len(found) != counts.get("files", len(found)):
        raise DataError(f"weights: {len(found)} files, must be {counts['files']}; get the archives again")
    yield from found


def _pieces(path: Path, folder: Path) -> Iterator[Piece]:
    if not path.name.endswith(_ARCHIVES):
        yield Piece(path, path.name, 0, path.stat().st_size)
        return
    for piece in archives.pieces(archives.uncompressed(path, folder)):
        if not is_safe(piece.name):
            raise DataError(f"{path}: {shown(piece.name)} is not a plain relative name; get it again")
        yield piece


def pretend(_sample: Path, _counts: Mapping[str, int]) -> Iterator[Task]:
    """Nothing."""
    return iter(())


def count(folder: Path) -> Dict[str, int]:
    """Files that are there."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {"files": sum(1 for _ in files)}
