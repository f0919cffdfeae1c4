"""ImageNet as TFRecord files, as the TensorFlow ResNet-50 of NVIDIA reads them.

Features are those of tensorflow/models, research/slim/datasets/build_imagenet_data.py; labels count from 1
in the order of the classes' WordNet ids, images are shuffled with its seed. What differs: an image stays byte
for byte as it is, where upstream encodes 22 CMYK images and one PNG again (TensorFlow's decode_jpeg reads
them all), and there are no boxes and no class text, which training does not read.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Dict, Iterator, List, Mapping

from data_set import imagenet, jpeg, tfrecord
from data_set.files import DataError, shown
from data_set.imagenet import SYNTHETIC, Image, Parts, needed
from data_set.work import Task

__all__ = ["FLAT", "SYNTHETIC", "count", "needed", "pretend", "tasks"]
FLAT = True  # few files, and large ones
FILES = {"train": ("train", 1024), "val": ("validation", 128)}
_SEED = 12345


def tasks(sources: Mapping[str, Path], counts: Mapping[str, int], _folder: Path) -> Iterator[Task]:
    """What is to be made of the archives: files of about equally many records."""
    return _files(imagenet.parts(sources, counts))


def pretend(sample: Path, counts: Mapping[str, int]) -> Iterator[Task]:
    """The same of one image over and over."""
    return _files(imagenet.pretend(sample, counts))


def _files(parts: Parts) -> Iterator[Task]:
    labels = imagenet.labels(parts)
    yield imagenet.table(parts)
    for part, images in parts.items():
        name, total = FILES[part]
        shuffled = list(images)
        random.Random(_SEED).shuffle(shuffled)  # noqa: S311 - an order, no secret
        for index in range(total):
            ours = shuffled[len(images) * index // total : len(images) * (index + 1) // total]
            yield Task(f"{name}-{index:05d}-of-{total:05d}", partial(_write, ours, labels))


def _write(images: List[Image], labels: Mapping[str, int], path: Path) -> None:
    tfrecord.write(path, (_example(image, labels[image.wnid]) for image in images))


def _example(image: Image, label: int) -> bytes:
    data = image.piece.read()
    size = jpeg.size(data)
    if size is None:
        raise DataError(f"{image.piece.archive}: {shown(image.name)} is no JPEG; get it again")
    return tfrecord.example(
        {
            "image/height": tfrecord.integers([size[1]]),
            "image/width": tfrecord.integers([size[0]]),
            "image/colorspace": tfrecord.blobs(b"RGB"),
            "image/channels": tfrecord.integers([3]),
            "image/class/label": tfrecord.integers([label]),
            "image/class/synset": tfrecord.blobs(image.wnid.encode()),
            "image/class/text": tfrecord.blobs(b""),
            **{f"image/object/bbox/{side}": tfrecord.floats([]) for side in ("xmin", "xmax", "ymin", "ymax")},
            "image/object/bbox/label": tfrecord.integers([]),
            "image/format": tfrecord.blobs(b"JPEG"),
            "image/filename": tfrecord.blobs(image.name.encode()),
            "image/encoded": tfrecord.blobs(data),
        }
    )


def count(folder: Path) -> Dict[str, int]:
    """Classes, and records per part, that are there."""
    per_class = imagenet.per_class(folder)
    found = {"classes": max(map(len, per_class.values()), default=0)} if per_class else {}
    for part, (name, total) in FILES.items():
        paths = [folder / f"{name}-{index:05d}-of-{total:05d}" for index in range(total)]
        there = [path for path in paths if path.is_file()]
        if there:
            found[part] = tfrecord.count_all(there)
    return found
