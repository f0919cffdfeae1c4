"""COCO 2017 as TFRecord files with instance masks, as the TensorFlow Mask R-CNN of NVIDIA reads them.

Features and distribution over files are those of tensorflow/tpu, tools/datasets/create_coco_tf_record.py,
with --include_masks; annotations with an empty box, or one that leaves its image, are left out as there.
"""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Tuple

from data_set import archives, jpeg, masks, tfrecord
from data_set.archives import Piece
from data_set.files import DataError, shown, write_whole
from data_set.work import Task

SHARDS = {"train": 256, "val": 32}
FLAT = True  # few files, and large ones
SYNTHETIC = {"train": 512, "val": 64}
_ANNOTATIONS = "annotations_trainval2017.zip"
_MOST_PIXELS = 1 << 24  # of an image, each a byte of a mask; COCO's largest have 640 x 640


class _Part(NamedTuple):
    name: str
    images: List[Dict[str, Any]]
    objects: Dict[int, List[Dict[str, Any]]]  # by image
    categories: Dict[int, str]
    files: Mapping[str, Piece]


def needed(counts: Mapping[str, int]) -> List[str]:
    """The archives."""
    return [*(f"{part}2017.zip" for part in SHARDS if counts.get(part)), _ANNOTATIONS]


def tasks(sources: Mapping[str, Path], counts: Mapping[str, int], _folder: Path) -> Iterator[Task]:
    """What is to be made of the archives."""
    texts = {piece.name: piece for piece in archives.pieces(sources[_ANNOTATIONS])}
    for part in (part for part in SHARDS if counts.get(part)):
        name = f"annotations/instances_{part}2017.json"
        if name not in texts:
            raise DataError(f"{sources[_ANNOTATIONS]}: lacks {name}; get it again")
        archive = sources[f"{part}2017.zip"]
        files = {piece.name.rpartition("/")[2]: piece for piece in archives.pieces(archive)}
        found = _part(part, texts[name].read(), files, f"{sources[_ANNOTATIONS]}: {name}")
        _check(found, counts[part], archive)
        yield Task(name, texts[name].copy)
        yield from _shards(found)


def _part(name: str, text: bytes, files: Mapping[str, Piece], where: str) -> _Part:
    try:
        document = json.loads(text)
        objects: Dict[int, List[Dict[str, Any]]] = {}
        for each in document["annotations"]:
            objects.setdefault(each["image_id"], []).append(each)
        categories = {each["id"]: str(each["name"]) for each in document["categories"]}
        images = [
            {
                key: kind(each[key])
                for key, kind in (("id", int), ("file_name", str), ("width", int), ("height", int))
            }
            for each in document["images"]
        ]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise DataError(f"{where}: is no file of COCO instances ({type(error).__name__}: {error})") from error
    return _Part(name, images, objects, categories, files)


def _check(part: _Part, count: int, archive: Path) -> None:
    if len(part.images) != count:
        raise DataError(f"{part.name}: the annotations name {len(part.images)} images, must be {count}")
    missing = [image["file_name"] for image in part.images if image["file_name"] not in part.files]
    if missing:
        raise DataError(f"{archive}: lacks {len(missing)} images, first {shown(missing[0])}; get it again")


def _shards(part: _Part) -> Iterator[Task]:
    total = SHARDS[part.name]
    for index in range(total):
        name = f"{part.name}-{index:05d}-of-{total:05d}.tfrecord"
        yield Task(name, partial(_write, part, part.images[index::total]))


def _write(part: _Part, images: List[Dict[str, Any]], path: Path) -> None:
    tfrecord.write(path, (_example(part, image) for image in images))


def _example(part: _Part, image: Mapping[str, Any]) -> bytes:
    name, width, height = image["file_name"], image["width"], image["height"]
    data = part.files[name].read()
    if jpeg.size(data) != (width, height) or width * height > _MOST_PIXELS:
        raise DataError(f"{part.files[name].archive}: {shown(name)} is no JPEG of {width} x {height} pixels")
    try:
        boxes = [(each, _box(each["bbox"], width, height)) for each in part.objects.get(image["id"], ())]
        kept = [(each, box) for each, box in boxes if box]
        features = _objects(part, [each for each, _ in kept], [box for _, box in kept])
        features["image/object/mask"] = tfrecord.blobs(
            *(
                masks.encoded(each["segmentation"], width, height, f"annotation {each.get('id')}")
                for each, _ in kept
            )
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{part.name}: the annotations of {shown(name)} are unusable ({error})") from error
    return tfrecord.example(
        {
            "image/height": tfrecord.integers([height]),
            "image/width": tfrecord.integers([width]),
            "image/filename": tfrecord.blobs(name.encode()),
            "image/source_id": tfrecord.blobs(str(image["id"]).encode()),
            "image/key/sha256": tfrecord.blobs(hashlib.sha256(data).hexdigest().encode()),
            "image/encoded": tfrecord.blobs(data),
            "image/format": tfrecord.blobs(b"jpeg"),
            **features,
        }
    )


def _box(box: Any, width: int, height: int) -> Tuple[float, ...]:
    """Left, right, top and bottom as fractions of the image; () where upstream leaves the object out."""
    x, y, wide, high = map(float, box)
    if wide <= 0 or high <= 0 or x + wide > width or y + high > height:
        return ()
    return (x / width, (x + wide) / width, y / height, (y + high) / height)


def _objects(part: _Part, kept: List[Dict[str, Any]], boxes: List[Tuple[float, ...]]) -> Dict[str, bytes]:
    sides = list(zip(*boxes)) or [(), (), (), ()]
    names = [part.categories[each["category_id"]].encode() for each in kept]
    return {
        **{
            f"image/object/bbox/{side}": tfrecord.floats(of)
            for side, of in zip(("xmin", "xmax", "ymin", "ymax"), sides)
        },
        "image/object/class/text": tfrecord.blobs(*names),
        "image/object/class/label": tfrecord.integers([int(each["category_id"]) for each in kept]),
        "image/object/is_crowd": tfrecord.integers([int(each["iscrowd"]) for each in kept]),
        "image/object/area": tfrecord.floats([float(each["area"]) for each in kept]),
    }


def pretend(sample: Path, counts: Mapping[str, int]) -> Iterator[Task]:
    """The same of one image over and over."""
    piece = Piece(sample, sample.name, 0, sample.stat().st_size)
    (width, height), (x, y, wide, high) = jpeg.SAMPLE_SIZE, jpeg.SAMPLE_BOX
    for part in (part for part in SHARDS if counts.get(part)):
        images = [
            {"id": number, "file_name": f"{number:012d}.jpg", "width": width, "height": height}
            for number in range(1, counts[part] + 1)
        ]
        rectangle = {
            **{"category_id": 1, "iscrowd": 0, "area": wide * high, "bbox": [x, y, wide, high]},
            "segmentation": [[x, y, x + wide, y, x + wide, y + high, x, y + high]],
        }
        document = {
            "images": images,
            "annotations": [{"id": each["id"], "image_id": each["id"], **rectangle} for each in images],
            "categories": [{"id": 1, "name": "person", "supercategory": "person"}],
        }
        text = json.dumps(document).encode()
        files = {str(each["file_name"]): piece for each in images}
        yield Task(f"annotations/instances_{part}2017.json", partial(write_whole, data=text))
        yield from _shards(_part(part, text, files, "synthetic"))


def count(folder: Path) -> Dict[str, int]:
    """Records per part that are there."""
    found = {}
    for part, total in SHARDS.items():
        paths = [folder / f"{part}-{index:05d}-of-{total:05d}.tfrecord" for index in range(total)]
        if (folder / f"annotations/instances_{part}2017.json").is_file():
            found[part] = tfrecord.count_all(path for path in paths if path.is_file())
    return found
