"""ImageNet ILSVRC2012: which images there are, of which class, and where in the archives they lie."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Dict, List, Mapping, NamedTuple

from data_set import archives
from data_set.archives import Piece
from data_set.files import DataError, shown, write_whole
from data_set.work import Task

TRAIN, VAL = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"
LABELS = "imagenet_2012_validation_synset_labels.txt"
SYNTHETIC = {"classes": 16, "train": 8192, "val": 256}
WNID = re.compile(r"n[0-9]{8}", re.ASCII)
CLASSES = "classes.tsv"  # label, class, and its images in each part
_MOST_LABELS = 16 << 20  # bytes; the real file has 0.5 MB


class Image(NamedTuple):
    """An image file of a class (WordNet id)."""

    wnid: str
    name: str
    piece: Piece


Parts = Dict[str, List[Image]]


def needed(counts: Mapping[str, int]) -> List[str]:
    """The archives."""
    return [*([TRAIN] if counts.get("train") else []), *([VAL, LABELS] if counts.get("val") else [])]


def parts(sources: Mapping[str, Path], counts: Mapping[str, int]) -> Parts:
    """The images of each part, checked against ``counts`` before anything is written. Raises DataError."""
    found: Parts = {}
    if counts.get("train"):
        found["train"] = _train(sources[TRAIN])
    if counts.get("val"):
        found["val"] = _val(sources[VAL], sources[LABELS])
    _check(found, counts)
    return found


def _train(path: Path) -> List[Image]:
    """Of a tar of one tar per class; those are not compressed, so that images lie there as they are."""
    found = []
    for outer in archives.pieces(path):
        wnid, _, suffix = outer.name.rpartition("/")[2].partition(".")
        if not WNID.fullmatch(wnid) or suffix != "tar":
            raise DataError(f"{path}: {shown(outer.name)} is not the tar of a class; get it again")
        found += [_image(wnid, piece) for piece in archives.tar_pieces(path, outer.offset)]
    return found


def _val(path: Path, labels: Path) -> List[Image]:
    """In order of their names, which is that of the labels: one class per line."""
    if labels.stat().st_size > _MOST_LABELS:
        raise DataError(f"{labels}: must have one class such as n01440764 per line; get it again")
    classes = labels.read_text("ascii", "replace").split()
    pieces = sorted(archives.pieces(path), key=lambda piece: piece.name)
    if len(classes) != len(pieces):
        raise DataError(
            f"{labels}: has {len(classes)} labels for {len(pieces)} images in {path.name}; get both again"
        )
    odd = [word for word in classes if not WNID.fullmatch(word)]
    if odd:
        raise DataError(f"{labels}: {shown(odd[0])} is not a class such as n01440764; get it again")
    return [_image(wnid, piece) for wnid, piece in zip(classes, pieces)]


def _image(wnid: str, piece: Piece) -> Image:
    name = piece.name.rpartition("/")[2]
    if not re.fullmatch(r"[A-Za-z0-9_-]+\.JPEG", name, re.ASCII):
        raise DataError(f"{piece.archive}: {shown(piece.name)} is not an image; get it again")
    return Image(wnid, name, piece)


def _check(found: Parts, counts: Mapping[str, int]) -> None:
    classes = {part: {image.wnid for image in images} for part, images in found.items()}
    everywhere = set().union(*classes.values())
    for part, those in classes.items():
        if missing := sorted(everywhere - those):
            raise DataError(
                f"{part}: lacks {len(missing)} classes, first {missing[0]}; get its archive again"
            )
    if len(everywhere) != counts.get("classes", len(everywhere)):
        wrong = f"{len(everywhere)} classes, must be {counts['classes']}"
        raise DataError(f"{', '.join(found)}: {wrong}; get the archives again")
    for part, images in found.items():
        if len(images) != counts[part]:
            raise DataError(f"{part}: {len(images)} images, must be {counts[part]}; get its archive again")


def labels(parts: Parts) -> Dict[str, int]:
    """Class to label: from 1, in the order of the WordNet ids."""
    classes = sorted({image.wnid for images in parts.values() for image in images})
    return {wnid: label for label, wnid in enumerate(classes, 1)}


def table(parts: Parts) -> Task:
    """The file that says how many images each class has in each part, by which a set is checked later."""
    counts = {part: Counter(image.wnid for image in images) for part, images in parts.items()}
    rows = [["label", "class", *parts]]
    rows += [
        [str(label), wnid, *(str(counts[part][wnid]) for part in parts)]
        for wnid, label in labels(parts).items()
    ]
    text = "".join("\t".join(row) + "\n" for row in rows)
    return Task(CLASSES, partial(write_whole, data=text.encode()))


def per_class(folder: Path) -> Dict[str, Dict[str, int]]:
    """What that file says: part to class to images; {} where there is none. Raises DataError."""
    path = folder / CLASSES
    if not path.is_file():
        return {}
    head, *rows = [line.split("\t") for line in path.read_text("ascii", "replace").splitlines()] or [[]]
    try:
        return {part: {row[1]: int(row[at]) for row in rows} for at, part in enumerate(head) if at > 1}
    except (ValueError, IndexError) as error:
        raise DataError(f"{path}: is damaged; remove the folder and prepare it again") from error


def pretend(sample: Path, counts: Mapping[str, int]) -> Parts:
    """The same image over and over, as evenly in all classes as it goes."""
    piece = Piece(sample, sample.name, 0, sample.stat().st_size)
    wnids = [f"n{number:08d}" for number in range(1, counts["classes"] + 1)]
    name_of = {"train": "{0}_{1}.JPEG", "val": "ILSVRC2012_val_{1:08d}.JPEG"}
    return {
        part: [
            Image(wnid, name.format(wnid, i + 1), piece)
            for i in range(counts[part])
            for wnid in [wnids[i % len(wnids)]]
        ]
        for part, name in name_of.items()
        if counts.get(part)
    }
