"""Cityscapes: images, and labels whose ids are those that training counts with.

The ids are those of mcordts/cityscapesScripts, cityscapesscripts/helpers/labels.py: 19 classes are trained,
every other label is 255, which loaders ignore.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, NamedTuple, Tuple

from data_set import archives, png
from data_set.archives import Piece
from data_set.files import DataError, write_whole
from data_set.work import Task

FLAT = False
SYNTHETIC = {"train": 128, "val": 32, "test": 4}
ONE, OFFICIAL = "cityscapes.tar", ("leftImg8bit_trainvaltest.zip", "gtFine_trainvaltest.zip")
PARTS = ("train", "val", "test")
WIDTH, HEIGHT = 2048, 1024
_TRAINED = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 31, 32, 33)
TRAIN_IDS = bytes(_TRAINED.index(label) if label in _TRAINED else 255 for label in range(256))
_MEMBER = re.compile(
    r"(?:.*/)?(leftImg8bit|gtFine)/(train|val|test)/([A-Za-z0-9_-]+)/([A-Za-z0-9_-]+)"
    r"_(leftImg8bit|gtFine_labelIds|gtFine_labelTrainIds)\.png",
    re.ASCII,
)


class _Image(NamedTuple):
    """What there is of one image, by the ends of the files' names."""

    part: str
    city: str
    stem: str
    files: Dict[str, Piece]


def needed(_counts: Mapping[str, int]) -> List[str]:
    """The archives."""
    return [ONE]


def tasks(sources: Mapping[str, Path], counts: Mapping[str, int], folder: Path) -> Iterator[Task]:
    """What is to be made of the archives: a folder per city, of images and of labels."""
    images: Dict[Tuple[str, str, str], _Image] = {}
    for path in sources.values():
        for piece in archives.pieces(archives.uncompressed(path, folder)):
            found = _MEMBER.fullmatch(piece.name)
            if found and found[1] == found[5].partition("_")[0] and counts.get(found[2]):
                key = (found[2], found[3], found[4])
                images.setdefault(key, _Image(*key, {})).files[found[5]] = piece
    _check(list(images.values()), counts)
    cities: Dict[Tuple[str, str], List[_Image]] = {}
    for image in images.values():
        cities.setdefault((image.part, image.city), []).append(image)
    for (part, city), those in sorted(cities.items()):
        yield Task(f"leftImg8bit/{part}/{city}", partial(_write_images, those))
        yield Task(f"gtFine/{part}/{city}", partial(_write_labels, those))


def _check(images: List[_Image], counts: Mapping[str, int]) -> None:
    for part in (part for part in PARTS if counts.get(part)):
        ours = [image for image in images if image.part == part]
        for image in ours:
            name = f"{part}/{image.city}/{image.stem}"
            if "leftImg8bit" not in image.files:
                raise DataError(f"{name}: has labels and no image; get the archive again")
            if part != "test" and not image.files.keys() & {"gtFine_labelIds", "gtFine_labelTrainIds"}:
                raise DataError(f"{name}: has no gtFine_labelIds.png; get the archive again")
        if len(ours) != counts[part]:
            raise DataError(f"{part}: {len(ours)} images, must be {counts[part]}; get the archive again")


def _write_images(images: List[_Image], folder: Path) -> None:
    folder.mkdir()
    for image in images:
        image.files["leftImg8bit"].copy(folder / f"{image.stem}_leftImg8bit.png")


def _write_labels(images: List[_Image], folder: Path) -> None:
    folder.mkdir()
    for image in images:
        ids, trained = (folder / f"{image.stem}_gtFine_{kind}.png" for kind in ("labelIds", "labelTrainIds"))
        if "gtFine_labelIds" in image.files:
            data = image.files["gtFine_labelIds"].read()
            ids.write_bytes(data)
            trained.write_bytes(converted(data, str(ids.name)))
        elif "gtFine_labelTrainIds" in image.files:
            image.files["gtFine_labelTrainIds"].copy(trained)


def converted(data: bytes, name: str) -> bytes:
    """The PNG of train ids for one of label ids. Raises DataError that calls it ``name``."""
    image = png.read(data, name)
    return png.gray(image._replace(pixels=image.pixels.translate(TRAIN_IDS)))


def pretend(_sample: Path, counts: Mapping[str, int]) -> Iterator[Task]:
    """Images and labels of the real size, the same over and over: bands of all labels."""
    labels = b"".join(bytes([y * 34 // HEIGHT]) * WIDTH for y in range(HEIGHT))
    colours = b"".join(
        bytes([(y * 7 + x) & 0xFF, x & 0xFF, y & 0xFF]) for y in range(64) for x in range(WIDTH)
    )
    image = png.rgb(WIDTH, HEIGHT, colours * (HEIGHT // 64))
    ids = png.gray(png.Gray(WIDTH, HEIGHT, labels))
    files = {"labelIds": ids, "labelTrainIds": converted(ids, "synthetic")}
    for part in PARTS:
        for index in range(counts.get(part, 0)):
            stem = f"synthetic_{index:06d}_000019"
            name = f"leftImg8bit/{part}/synthetic/{stem}_leftImg8bit.png"
            yield Task(name, partial(write_whole, data=image))
            for kind, data in files.items():
                yield Task(
                    f"gtFine/{part}/synthetic/{stem}_gtFine_{kind}.png", partial(write_whole, data=data)
                )


def count(folder: Path) -> Dict[str, int]:
    """Images per part that are there, those of train and val only with their labels."""
    found = {}
    for part in PARTS:
        names = [
            path.relative_to(folder / "leftImg8bit" / part)
            for path in folder.glob(f"leftImg8bit/{part}/*/*.png")
        ]
        labels = (
            folder
            / "gtFine"
            / part
            / name.parent
            / name.name.replace("_leftImg8bit.", "_gtFine_labelTrainIds.")
            for name in names
        )
        if names:
            found[part] = sum(1 for path in labels if part == "test" or path.is_file())
    return found
