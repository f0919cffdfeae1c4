"""ImageNet as folders: PART/CLASS/IMAGE.JPEG, as torchvision and DALI read it."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Dict, Iterator, List, Mapping

from data_set import imagenet
from data_set.files import DataError
from data_set.imagenet import SYNTHETIC, Image, Parts, needed
from data_set.work import Task

__all__ = ["FLAT", "SYNTHETIC", "count", "needed", "pretend", "tasks"]
FLAT = False


def tasks(sources: Mapping[str, Path], counts: Mapping[str, int], _folder: Path) -> Iterator[Task]:
    """What is to be made of the archives: a folder per class."""
    return _folders(imagenet.parts(sources, counts))


def pretend(sample: Path, counts: Mapping[str, int]) -> Iterator[Task]:
    """The same of one image over and over."""
    return _folders(imagenet.pretend(sample, counts))


def _folders(parts: Parts) -> Iterator[Task]:
    yield imagenet.table(parts)
    for part, images in parts.items():
        classes: Dict[str, List[Image]] = {}
        for image in images:
            classes.setdefault(image.wnid, []).append(image)
        for wnid, those in classes.items():
            yield Task(f"{part}/{wnid}", partial(_write, those))


def _write(images: List[Image], folder: Path) -> None:
    folder.mkdir()
    for image in images:
        image.piece.copy(folder / image.name)


def count(folder: Path) -> Dict[str, int]:
    """Classes, and images per part, that are there. Raises DataError where a class lacks images."""
    found: Dict[str, int] = {}
    classes = []
    stated = imagenet.per_class(folder)
    for part in ("train", "val"):
        if (folder / part).is_dir():
            of_class = {
                entry.name: _images(entry.path) for entry in os.scandir(folder / part) if entry.is_dir()
            }
            for wnid, images in stated.get(part, {}).items():
                if of_class.get(wnid, 0) != images:
                    raise DataError(
                        f"{folder}/{part}/{wnid}: {of_class.get(wnid, 0)} images, must be {images}"
                    )
            found[part] = sum(of_class.values())
            classes.append({wnid for wnid, images in of_class.items() if images})
    return {"classes": len(set.intersection(*classes)) if classes else 0, **found}


def _images(folder: str) -> int:
    return sum(1 for entry in os.scandir(folder) if entry.name.endswith(".JPEG") and entry.is_file())
