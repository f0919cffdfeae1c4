"""``data``: the program that prepares data sets, on archives that are right and on archives that are not."""

from __future__ import annotations

import ast
import fcntl
import gzip
import hashlib
import io
import json
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import data_reference as reference
import pytest
import yaml
from kit import Kit, wait_for

from runner import records
from runner.io import datasets, inventory
from runner.model import Archive, Dataset

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "roles" / "data_set" / "files" / "data_set"


def jpeg(width: int, height: int) -> bytes:
    """The beginning of a JPEG file, as far as the size is stated (ITU-T T.81 B.2.2), and an end."""
    frame = b"\x08" + height.to_bytes(2, "big") + width.to_bytes(2, "big") + b"\x01\x01\x11\x00"
    application = b"\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00"
    return b"\xff\xd8" + application + b"\xff\xc0\x00\x0b" + frame + b"\xff\xd9"


def tar(files: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def zipped(files: Mapping[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # of no time, so that it is the same each time
    return stream.getvalue()


# --- a host --------------------------------------------------------------------------------


class Host:
    """A data root, a folder of archives, and the program as runkit brings it to hosts."""

    def __init__(self, folder: Path, root: Path | None = None) -> None:
        self.folder, self.root, self.source = folder, root or folder / "root", folder / "archives"
        self.source.mkdir()

    def put(self, files: Mapping[str, bytes]) -> None:
        for name, data in files.items():
            (self.source / name).write_bytes(data)

    def command(self, wanted: Dataset, *, source: bool, synthetic: bool, action: str = "make") -> list[str]:
        local = inventory.outline("local")
        order = datasets.Order(
            replace(local, data_root=str(self.root)), (wanted,), self.source if source else None, synthetic,
            self.folder / "log", lambda: False,
        )  # fmt: skip
        datasets.write_program(self.folder / "data.pyz", self.root, order)
        return [sys.executable, str(self.folder / "data.pyz"), action, str(self.folder / "result.json")]

    def data(self, wanted: Dataset, *, source: bool = True, synthetic: bool = False) -> dict[str, Any]:
        """Run it; the row of the set, and whether it said that something changed."""
        done = subprocess.run(
            self.command(wanted, source=source, synthetic=synthetic),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (0, "")
        row: dict[str, Any] = json.loads((self.folder / "result.json").read_text())["sets"][0]
        assert (done.stdout == "changed\n") == (row["state"] == "made")
        assert "\n" not in row["detail"]
        return row

    def files(self, folder: str = "set") -> dict[str, tuple[int, int]]:
        """Every file of a set that is not hidden, with its inode and time of change."""
        paths = (path for path in (self.root / folder).rglob("[!.]*") if path.is_file())
        return {
            str(path.relative_to(self.root / folder)): (path.stat().st_ino, path.stat().st_mtime_ns)
            for path in paths
        }


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def dataset(kind: str, counts: Mapping[str, int], files: Mapping[str, bytes], **more: Any) -> Dataset:
    archives = tuple(Archive(name, md5=hashlib.md5(data).hexdigest()) for name, data in files.items())
    page = "https://data.example.org/register"
    return Dataset(kind, "set", "A set", "research only", page, archives, counts, **more)


# --- small archives of each kind -----------------------------------------------------------

LABELS = "imagenet_2012_validation_synset_labels.txt"
# In no order, so that label 1 is not the class that comes first.
CLASSES = ("n00000030", "n00000010", "n00000020")
TRAIN = {wnid: [f"{wnid}_{i}.JPEG" for i in range(3 + k)] for k, wnid in enumerate(CLASSES)}
VAL = [CLASSES[i] for i in (2, 0, 1, 0)]


def imagenet(kind: str, train: Mapping[str, list[str]] = TRAIN) -> tuple[Dataset, dict[str, bytes]]:
    classes = {
        f"{wnid}.tar": tar({name: jpeg(100 + i, 50) for i, name in enumerate(names)})
        for wnid, names in train.items()
    }
    val = {f"ILSVRC2012_val_{i:08d}.JPEG": jpeg(200 + i, 60) for i in (3, 1, 4, 2)}  # not in their order
    files = {
        "ILSVRC2012_img_train.tar": tar(classes),
        "ILSVRC2012_img_val.tar": tar(val),
        LABELS: "".join(f"{wnid}\n" for wnid in VAL).encode(),
    }
    counts = {"classes": 3, "train": sum(map(len, TRAIN.values())), "val": 4}
    return dataset(kind, counts, files), files


# Masks as pycocotools 2.0 decodes them: run lengths along columns, of an image of 24 x 22 pixels.
OUTLINES: dict[str, tuple[Any, list[int]]] = {
    "triangle": (
        [[3.5, 2.25, 17.1, 9.9, 5.0, 20.7]],
        [91, 11, 11, 17, 6, 15, 7, 14, 9, 13, 10, 11, 11, 10, 13, 8, 14, 7, 16, 5, 17, 4, 19, 2, 21, 1, 165],
    ),
    "two parts": (
        [[1, 1, 6, 1, 6, 6, 1, 6], [10.2, 3.3, 19.9, 4.4, 15.5, 14.6]],
        [23, 5, 17, 5, 17, 5, 17, 5, 17, 5, 107, 1, 22, 2, 20, 4, 18, 6, 16, 8, 14, 10, 12, 8, 14, 6, 16,
         4, 18, 1, 105],
    ),
    "crossing itself": (
        [[2, 2, 22, 14, 22, 2, 2, 14]],
        [46, 12, 11, 10, 12, 9, 14, 8, 15, 6, 16, 6, 17, 4, 18, 3, 20, 2, 64, 2, 19, 3, 19, 4, 17, 6, 16,
         6, 15, 8, 13, 9, 13, 10, 11, 12, 52],
    ),
    "beyond the image": (
        [[-4.2, 5.5, 12.0, -3.0, 30.9, 11.1, 9.0, 31.0]],
        [3, 11, 11, 13, 8, 16, 6, 18, 3, 21, 1, 263, 1, 21, 2, 20, 3, 18, 4, 18, 5, 16, 7, 14, 9, 12, 4],
    ),
    "crowd": ({"size": [22, 24], "counts": [30, 40, 458]}, [30, 40, 458]),
}  # fmt: skip


def coco() -> tuple[Dataset, dict[str, bytes]]:
    documents, images = {}, {}
    for part, number in (("train", 300), ("val", 3)):
        named = [
            {"id": i * 7, "file_name": f"{i:012d}.jpg", "width": 24, "height": 22}
            for i in range(1, number + 1)
        ]
        objects = [
            {"id": k, "image_id": 7, "category_id": 1 + k % 2, "iscrowd": int(name == "crowd"),
             "area": 10.5 * k, "bbox": [2, 1, 12, 11], "segmentation": outline}
            for k, (name, (outline, _)) in enumerate(OUTLINES.items())
        ]  # fmt: skip
        # Upstream leaves out what leaves its image, and what has no extent.
        objects += [{**objects[0], "bbox": [20, 1, 5, 5]}, {**objects[0], "bbox": [2, 1, 0, 5]}]
        categories = [{"id": 1, "name": "person"}, {"id": 2, "name": "traffic light"}]
        document = {"images": named, "annotations": objects, "categories": categories}
        documents[f"annotations/instances_{part}2017.json"] = json.dumps(document).encode()
        images[part] = {f"{part}2017/{each['file_name']}": jpeg(24, 22) for each in named}
    files = {f"{part}2017.zip": zipped(those) for part, those in images.items()}
    files["annotations_trainval2017.zip"] = zipped({**documents, "annotations/captions_val2017.json": b"{}"})
    return dataset("coco_tfrecord", {"train": 300, "val": 3}, files), files


# Label ids and train ids by name, from cityscapesscripts/helpers/labels.py.
TRAINED = {
    "road": (7, 0), "sidewalk": (8, 1), "building": (11, 2), "wall": (12, 3), "fence": (13, 4),
    "pole": (17, 5), "traffic light": (19, 6), "traffic sign": (20, 7), "vegetation": (21, 8),
    "terrain": (22, 9), "sky": (23, 10), "person": (24, 11), "rider": (25, 12), "car": (26, 13),
    "truck": (27, 14), "bus": (28, 15), "train": (31, 16), "motorcycle": (32, 17), "bicycle": (33, 18),
}  # fmt: skip
STREET = [bytes((x * x + 5 * y + (y * x) % 11) % 36 for x in range(41)) for y in range(11)]


def cityscapes() -> tuple[Dataset, dict[str, bytes]]:
    images, labels = {}, {}
    for part, city, number in (
        ("train", "aachen", 2),
        ("train", "ulm", 1),
        ("val", "munster", 1),
        ("test", "bonn", 1),
    ):
        for i in range(number):
            stem = f"{part}/{city}/{city}_{i:06d}_000019"
            images[f"leftImg8bit/{stem}_leftImg8bit.png"] = f"image {stem}".encode()
            labels[f"gtFine/{stem}_gtFine_labelIds.png"] = reference.png(STREET, [0, 1, 2, 3, 4])
            labels[f"gtFine/{stem}_gtFine_color.png"] = b"not needed"
    extra = {"README": b"", "license.txt": b"", ".hidden": b"", "read me.txt": b""}
    whole = {f"./cityscapes/{name}": data for name, data in {**images, **labels, **extra}.items()}
    files = {"cityscapes.tar": tar(whole)}
    return dataset("cityscapes", {"train": 3, "val": 1, "test": 1}, files), files


def weights() -> tuple[Dataset, dict[str, bytes]]:
    files = {
        "model.index": b"index",
        "model.pth": zipped({"inside": b"a PyTorch file is a zip, and stays one"}),
        "backbone.tar.gz": gzip.compress(tar({"backbone/model.pdparams": b"weights" * 1000}), mtime=0),
        "more.zip": zipped({"more/a.bin": b"a", "more/b.bin": b"b"}),
    }
    return dataset("weights", {"files": 5}, files), files


MAKERS: dict[str, Callable[[], tuple[Dataset, dict[str, bytes]]]] = {
    "coco_tfrecord": coco,
    "imagenet_folders": lambda: imagenet("imagenet_folders"),
    "imagenet_tfrecord": lambda: imagenet("imagenet_tfrecord"),
    "cityscapes": cityscapes,
    "weights": weights,
}


# --- right archives ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MAKERS)
def test_made_once_and_then_left_alone(host: Host, kind: str) -> None:
    wanted, files = MAKERS[kind]()
    host.put(files)
    row = host.data(wanted)
    assert (row["state"], row["counts"], row["detail"]) == ("made", wanted.counts, "")
    before = host.files()
    assert before
    note = json.loads((host.root / "set" / ".runkit-data.json").read_text())
    digests = {name: f"md5:{hashlib.md5(data).hexdigest()}" for name, data in files.items()}
    assert (note["kind"], note["synthetic"], note["archives"]) == (kind, False, digests)
    for source in (True, False):  # with the archives at hand, and without
        again = host.data(wanted, source=source)
        assert (again["state"], again["counts"], host.files()) == ("ready", wanted.counts, before)
    assert sorted(path.name for path in host.root.iterdir()) == [
        ".runkit-data.lock", ".runkit-verified.json", "set",
    ]  # fmt: skip


def test_imagenet_folders_have_the_labels_classes(host: Host) -> None:
    wanted, files = MAKERS["imagenet_folders"]()
    host.put(files)
    host.data(wanted)
    expected = {f"train/{wnid}/{name}" for wnid, names in TRAIN.items() for name in names}
    expected |= {f"val/{wnid}/ILSVRC2012_val_{i:08d}.JPEG" for i, wnid in enumerate(VAL, 1)}
    assert set(host.files()) == expected | {"classes.tsv"}
    assert (host.root / "set" / "val" / VAL[2] / "ILSVRC2012_val_00000003.JPEG").read_bytes() == jpeg(203, 60)
    assert (host.root / "set" / "classes.tsv").read_text().splitlines() == [
        "label\tclass\ttrain\tval", "1\tn00000010\t4\t1", "2\tn00000020\t5\t1", "3\tn00000030\t3\t2",
    ]  # fmt: skip


def test_imagenet_records(host: Host) -> None:
    wanted, files = MAKERS["imagenet_tfrecord"]()
    host.put(files)
    host.data(wanted)
    shards = sorted((host.root / "set").glob("train-*"))
    assert [shards[0].name, shards[-1].name, len(shards)] == [
        "train-00000-of-01024",
        "train-01023-of-01024",
        1024,
    ]
    assert len(list((host.root / "set").glob("validation-*-of-00128"))) == 128
    found = [reference.example(each) for path in shards for each in reference.records(path)]
    label = {"n00000010": 1, "n00000020": 2, "n00000030": 3}
    for each in found:
        (name,), (wnid,) = each["image/filename"], each["image/class/synset"]
        width = 100 + int(str(name, "ascii")[10:-5])  # type: ignore[arg-type]
        assert each == {
            "image/filename": [name], "image/class/synset": [wnid], "image/class/text": [b""],
            "image/class/label": [label[str(wnid, "ascii")]],  # type: ignore[arg-type]
            "image/encoded": [jpeg(width, 50)], "image/format": [b"JPEG"],
            "image/width": [width], "image/height": [50], "image/colorspace": [b"RGB"], "image/channels": [3],
            "image/object/bbox/xmin": [], "image/object/bbox/xmax": [], "image/object/bbox/ymin": [],
            "image/object/bbox/ymax": [], "image/object/bbox/label": [],
        }  # fmt: skip
    names = [str(each["image/filename"][0], "ascii") for each in found]  # type: ignore[arg-type]
    assert sorted(names) == sorted(name for names in TRAIN.values() for name in names)
    assert names != [name for names in TRAIN.values() for name in names]  # shuffled


def test_coco_records(host: Host) -> None:
    wanted, files = coco()
    host.put(files)
    host.data(wanted)
    shards = sorted((host.root / "set").glob("train-*"))
    assert [path.name for path in shards] == [f"train-{i:05d}-of-00256.tfrecord" for i in range(256)]
    found = [[reference.example(each) for each in reference.records(path)] for path in shards]
    assert [len(each) for each in found] == [2] * 44 + [1] * 212  # 300 images in turn
    assert [each["image/source_id"] for each in found[3]] == [[b"28"], [b"1820"]]
    first = found[0][0]
    masks = first.pop("image/object/mask")
    for data, (name, (_, runs)) in zip(masks, OUTLINES.items(), strict=True):
        rows = reference.pixels(data)  # type: ignore[arg-type]
        columns = bytes(rows[y][x] for x in range(24) for y in range(22))
        assert columns == b"".join(bytes([i % 2]) * run for i, run in enumerate(runs)), name
    boxes = {side: first.pop(f"image/object/bbox/{side}") for side in ("xmin", "xmax", "ymin", "ymax")}
    sides = {"xmin": 2 / 24, "xmax": 14 / 24, "ymin": 1 / 22, "ymax": 12 / 22}
    assert boxes == {side: pytest.approx([value] * 5) for side, value in sides.items()}
    assert first == {
        "image/height": [22], "image/width": [24], "image/filename": [b"000000000001.jpg"],
        "image/source_id": [b"7"], "image/format": [b"jpeg"], "image/encoded": [jpeg(24, 22)],
        "image/key/sha256": [hashlib.sha256(jpeg(24, 22)).hexdigest().encode()],
        "image/object/class/text": [b"person", b"traffic light", b"person", b"traffic light", b"person"],
        "image/object/class/label": [1, 2, 1, 2, 1], "image/object/is_crowd": [0, 0, 0, 0, 1],
        "image/object/area": [0.0, 10.5, 21.0, 31.5, 42.0],
    }  # fmt: skip
    assert found[1][0]["image/object/mask"] == []
    names = sorted(path.name for path in (host.root / "set" / "annotations").iterdir())
    assert names == ["instances_train2017.json", "instances_val2017.json"]


def official(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The archives that cityscapes-dataset.com gives, of the one archive."""
    with tarfile.open(fileobj=io.BytesIO(files["cityscapes.tar"])) as archive:
        members = {m.name: archive.extractfile(m) for m in archive}
        found = {
            name.removeprefix("./cityscapes/"): stream.read() for name, stream in members.items() if stream
        }
    kinds = {"leftImg8bit": "leftImg8bit_trainvaltest.zip", "gtFine": "gtFine_trainvaltest.zip"}
    return {
        target: zipped({n: data for n, data in found.items() if n.startswith(kind)})
        for kind, target in kinds.items()
    }


@pytest.mark.parametrize("form", ["plain", "gzip", "official"])
def test_cityscapes_labels(host: Host, form: str) -> None:
    """All filters of PNG; every id that is not trained, and there are some beyond the last, is 255."""
    wanted, files = cityscapes()
    if form == "gzip":
        packed = gzip.compress(files["cityscapes.tar"])
        wanted, files = replace(wanted, archives=(Archive("cityscapes.tar"),)), {"cityscapes.tar": packed}
    host.put(official(files) if form == "official" else files)
    assert host.data(wanted)["state"] == "made"
    ids = dict(TRAINED.values())
    expected = [bytes(ids.get(value, 255) for value in row) for row in STREET]
    assert len(set(b"".join(STREET))) == 36
    labels = sorted((host.root / "set").glob("gtFine/*/*/*_gtFine_labelTrainIds.png"))
    assert len(labels) == 5
    assert all(reference.pixels(path.read_bytes()) == expected for path in labels)
    image = host.root / "set/leftImg8bit/train/ulm/ulm_000000_000019_leftImg8bit.png"
    assert image.read_bytes() == b"image train/ulm/ulm_000000_000019"
    assert [name for name in host.files() if "color" in name] == []


def test_weights_are_unpacked_or_copied(host: Host) -> None:
    wanted, files = weights()
    host.put(files)
    host.data(wanted)
    names = {"model.index", "model.pth", "backbone/model.pdparams", "more/a.bin", "more/b.bin"}
    assert set(host.files()) == names
    assert (host.root / "set" / "model.pth").read_bytes() == files["model.pth"]
    assert (host.root / "set" / "backbone" / "model.pdparams").read_bytes() == b"weights" * 1000


@pytest.mark.parametrize("top", ["backbone/", "another_name/", "", "./"])
def test_weights_lie_in_a_folder_called_as_their_archive(host: Host, top: str) -> None:
    """What PaddleSeg does with what it fetches: its configuration names no folder of the archive."""
    packed = gzip.compress(tar({f"{top}model.pdparams": b"weights", f"{top}more/notes.txt": b"x"}))
    host.put({"backbone.tar.gz": packed})
    assert host.data(dataset("weights", {"files": 2}, {"backbone.tar.gz": packed}))["state"] == "made"
    assert set(host.files()) == {"backbone/model.pdparams", "backbone/more/notes.txt"}


def test_crc32c_of_rfc_3720() -> None:
    """The program's is held against the reader's in each test above; the reader's against the standard's."""
    ascending = bytes(range(32))
    assert [reference.crc32c(each) for each in (bytes(32), b"\xff" * 32, ascending, ascending[::-1])] == [
        0x8A9136AA, 0x62A8AB43, 0x46DD794E, 0x113FDB5C,
    ]  # fmt: skip


# --- wrong archives ------------------------------------------------------------------------


def cut(files: dict[str, bytes], name: str) -> None:
    files[name] = files[name][: len(files[name]) * 2 // 3]


def cut_at_a_member(files: dict[str, bytes]) -> None:
    """Python's tarfile takes this for a whole archive."""
    with tarfile.open(fileobj=io.BytesIO(files["ILSVRC2012_img_val.tar"])) as archive:
        files["ILSVRC2012_img_val.tar"] = files["ILSVRC2012_img_val.tar"][: archive.getmembers()[2].offset]


def without_class(files: dict[str, bytes]) -> None:
    files.update(imagenet("imagenet_folders", {k: v for k, v in TRAIN.items() if k != "n00000020"})[1])


def without_image(files: dict[str, bytes]) -> None:
    files.update(imagenet("imagenet_folders", {k: v[1:] for k, v in TRAIN.items()})[1])


def member(name: str) -> Callable[[dict[str, bytes]], None]:
    def change(files: dict[str, bytes]) -> None:
        files["more.zip"] = zipped({name: b"x"})

    return change


def special(kind: bytes, size: int = 0) -> Callable[[dict[str, bytes]], None]:
    """An archive with one member of a kind that none of ours has."""

    def change(files: dict[str, bytes]) -> None:
        info = tarfile.TarInfo("model")
        info.type, info.linkname, info.size = kind, "/etc/passwd", size
        files["backbone.tar.gz"] = info.tobuf(tarfile.GNU_FORMAT) + bytes(4 * tarfile.BLOCKSIZE)

    return change


def flipped(files: dict[str, bytes], name: str) -> None:
    """A byte in the middle of what is packed is another."""
    middle = len(files[name]) // 2
    files[name] = files[name][:middle] + bytes([files[name][middle] ^ 0xFF]) + files[name][middle + 1 :]


def marked(files: dict[str, bytes], name: str, place: int, value: int) -> None:
    """Another word in the table of a zip archive of one member, and in the header of that member."""
    data = bytearray(files[name])
    for signature, offset in ((b"PK\3\4", place), (b"PK\1\2", place + 2)):
        at = data.index(signature) + offset
        data[at : at + 2] = value.to_bytes(2, "little")
    files[name] = bytes(data)


def image_damaged(files: dict[str, bytes]) -> None:
    """The first byte of what the first image is packed to is another."""
    files.update(official(files))
    del files["cityscapes.tar"]
    data = bytearray(files["leftImg8bit_trainvaltest.zip"])
    data[30 + int.from_bytes(data[26:28], "little")] ^= 0xFF
    files["leftImg8bit_trainvaltest.zip"] = bytes(data)


def bomb(files: dict[str, bytes], name: str) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("more/a.bin", bytes(40 << 20))
    files[name] = stream.getvalue() if name.endswith(".zip") else gzip.compress(bytes(40 << 20))


def label_text(files: dict[str, bytes], text: bytes) -> None:
    files["annotations_trainval2017.zip"] = zipped({"annotations/instances_train2017.json": text})


def bad_label(files: dict[str, bytes]) -> None:
    end = reference.png(STREET, [0, 1, 2, 3, 4])[-40:]
    files["cityscapes.tar"] = files["cityscapes.tar"].replace(end, bytes(40))


def text(files: dict[str, bytes], old: bytes, new: bytes) -> None:
    archive = zipfile.ZipFile(io.BytesIO(files["annotations_trainval2017.zip"]))
    documents = {name: archive.read(name).replace(old, new) for name in archive.namelist()}
    files["annotations_trainval2017.zip"] = zipped(documents)


WRONG: dict[str, tuple[str, Callable[[dict[str, bytes]], object], str]] = {
    "imagenet cut off": (
        "imagenet_folders", lambda f: cut(f, "ILSVRC2012_img_train.tar"), "train.tar: is not a whole tar",
    ),
    "imagenet cut at a member": ("imagenet_tfrecord", cut_at_a_member, "is cut off or damaged at byte"),
    "imagenet lacks a class": ("imagenet_folders", without_class, "train: lacks 1 classes, first n00000020"),
    "imagenet lacks images": ("imagenet_tfrecord", without_image, "train: 9 images, must be 12"),
    "imagenet lacks a label": (
        "imagenet_tfrecord", lambda f: f.update({LABELS: f[LABELS][:-10]}), "has 3 labels for 4 images",
    ),
    "coco cut off": ("coco_tfrecord", lambda f: cut(f, "train2017.zip"), "train2017.zip: is not a whole"),
    "coco lacks images": (
        "coco_tfrecord", lambda f: f.update({"val2017.zip": zipped({"val2017/1.jpg": b""})}), "lacks 3",
    ),
    "coco of another size": (
        "coco_tfrecord", lambda f: text(f, b'"width": 24', b'"width": 25'), "is no JPEG of 25 x 22 pixels",
    ),
    "coco without numbers": ("coco_tfrecord", lambda f: text(f, b"[2, 1, 12, 11]", b"[2, 1]"), "unusable"),
    "coco not COCO": (
        "coco_tfrecord", lambda f: text(f, b'"images"', b'"pictures"'), "no file of COCO instances",
    ),
    "cityscapes cut off": ("cityscapes", lambda f: cut(f, "cityscapes.tar"), "cityscapes.tar: is "),
    "cityscapes label damaged": ("cityscapes", bad_label, "is a damaged PNG"),
    "weights cut off": ("weights", lambda f: cut(f, "backbone.tar.gz"), "cut off or damaged"),
    "coco deeply nested": ("coco_tfrecord", lambda f: label_text(f, b"[" * 200_000), "no file of COCO inst"),
    "coco without end": (
        "coco_tfrecord", lambda f: text(f, b'"width": 24', b'"width": Infinity'), "no file of COCO instances",
    ),
    "coco a corner far away": ("coco_tfrecord", lambda f: text(f, b"[[3.5,", b"[[1e9,"), "far beyond"),
    "coco a long run": ("coco_tfrecord", lambda f: text(f, b"[30, 40,", b"[30, 99999999999,"), "not in its"),
    "coco a run backwards": ("coco_tfrecord", lambda f: text(f, b"[30, 40,", b"[30, -40,"), "not in its"),
    "coco a box without end": (
        "coco_tfrecord", lambda f: text(f, b'"area": 10.5', b'"area": 1e300'), "the annotations of",
    ),
    "cityscapes image damaged": ("cityscapes", image_damaged, "_leftImg8bit.png' is damaged"),
    "weights outside": ("weights", member("../../escaped"), "'../../escaped' leads out of its folder"),
    "weights at the root": ("weights", member("/tmp/escaped"), "leads out of its folder"),
    "weights damaged": ("weights", lambda f: flipped(f, "backbone.tar.gz"), "cut off or damaged"),
    "weights encrypted": ("weights", lambda f: marked(f, "more.zip", 6, 1), "is encrypted or packed"),
    "weights deflate64": ("weights", lambda f: marked(f, "more.zip", 8, 9), "is encrypted or packed"),
    "weights without end, zip": ("weights", lambda f: bomb(f, "more.zip"), "to more than 32 times its size"),
    "weights without end": ("weights", lambda f: bomb(f, "backbone.tar.gz"), "to more than 32 times"),
    "weights in a device": ("weights", special(tarfile.CHRTYPE), "is neither a plain file nor a folder"),
    "weights in a pipe": ("weights", special(tarfile.FIFOTYPE), "is neither a plain file nor a folder"),
    "weights with holes": ("weights", special(tarfile.GNUTYPE_SPARSE), "is neither a plain file"),
    "weights below nothing": ("weights", special(tarfile.REGTYPE, -512), "states a size below 0"),
    "weights hidden": ("weights", member(".runkit-data.json"), "is not a plain relative name"),
    "weights in a link": ("weights", special(tarfile.SYMTYPE), "'model' is a link"),
    "weights in a hard link": ("weights", special(tarfile.LNKTYPE), "'model' is a link"),
    "weights twice": ("weights", member("backbone/model.pdparams"), "must be 5"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_archives_make_nothing(host: Host, case: str) -> None:
    """Checksums left out, since they would find all of these first."""
    kind, spoil, said = WRONG[case]
    wanted, files = MAKERS[kind]()
    spoil(files)
    host.put(files)
    row = host.data(replace(wanted, archives=tuple(Archive(each.name) for each in wanted.archives)))
    assert row["state"] == "failed"
    assert said in row["detail"]
    assert not (host.root / "set").exists()
    assert not list(host.folder.rglob("*escaped*"))
    # The right archives mend it, whatever was left of the wrong ones.
    host.put(MAKERS[kind]()[1])
    assert host.data(wanted)["counts"] == wanted.counts


@pytest.mark.parametrize("kind", MAKERS)
def test_wrong_checksum(host: Host, kind: str) -> None:
    wanted, files = MAKERS[kind]()
    name = wanted.archives[-1].name
    host.put({**files, name: files[name][:-1] + b"!"})
    row = host.data(wanted)
    stated = hashlib.md5(files[name]).hexdigest()
    assert row["state"] == "failed"
    assert f"{name}: its md5 is " in row["detail"]
    assert f"must be {stated}; get it again" in row["detail"]


def test_cityscapes_of_the_published_checksum(host: Host) -> None:
    wanted, files = cityscapes()
    host.put(files)
    published = Archive("cityscapes.tar", md5="37724b19b6e5d41f9f147936d60b3c29")
    assert (
        "must be 37724b19b6e5d41f9f147936d60b3c29"
        in host.data(replace(wanted, archives=(published,)))["detail"]
    )


@pytest.mark.parametrize("kind", MAKERS)
def test_missing_archives_are_named_with_where_to_get_them(host: Host, kind: str) -> None:
    wanted, files = MAKERS[kind]()
    host.put(dict(list(files.items())[1:]))
    detail = host.data(wanted)["detail"]
    assert f"{next(iter(files))}: not in {host.source}" in detail
    assert "https://data.example.org/register (licence: research only)" in detail


# --- what is there already -----------------------------------------------------------------


def test_a_set_that_lost_a_file_is_made_again(host: Host) -> None:
    wanted, files = MAKERS["imagenet_folders"]()
    host.put(files)
    host.data(wanted)
    (host.root / "set" / "train" / "n00000010" / "n00000010_1.JPEG").unlink()
    assert "train/n00000010: 3 images, must be 4" in host.data(wanted, source=False)["detail"]
    assert host.data(wanted)["state"] == "made"
    assert host.data(wanted)["state"] == "ready"


def test_a_record_file_that_was_cut_is_found(host: Host) -> None:
    wanted, files = coco()
    host.put(files)
    host.data(wanted)
    with (host.root / "set" / "val-00001-of-00032.tfrecord").open("r+b") as stream:
        stream.truncate(100)
    assert "val-00001-of-00032.tfrecord: ends within a record" in host.data(wanted, source=False)["detail"]


def test_a_set_of_somebody_elses_making_is_taken_when_whole_and_never_touched(host: Host) -> None:
    wanted, files = MAKERS["imagenet_folders"]()
    host.put(files)
    host.data(wanted)
    for name in (".runkit-data.json", "classes.tsv"):
        (host.root / "set" / name).unlink()
    before = host.files()
    assert (host.data(wanted)["state"], host.files()) == ("ready", before)
    (host.root / "set" / "val" / VAL[2] / "ILSVRC2012_val_00000003.JPEG").unlink()
    before = host.files()
    assert "move it away" in host.data(wanted)["detail"]
    assert host.files() == before


SYNTHETIC = {
    "coco_tfrecord": {"train": 512, "val": 64},
    "imagenet_folders": {"classes": 16, "train": 8192, "val": 256},
    "imagenet_tfrecord": {"classes": 16, "train": 8192, "val": 256},
    "cityscapes": {"train": 128, "val": 32, "test": 4},
}


@pytest.mark.parametrize("kind", SYNTHETIC)
def test_synthetic_sets_are_no_real_ones(host: Host, kind: str) -> None:
    wanted, files = MAKERS[kind]()
    row = host.data(wanted, source=False, synthetic=True)
    assert (row["state"], row["counts"], row["detail"]) == ("made", SYNTHETIC[kind], "synthetic")
    before = host.files()
    for synthetic in (True, False):
        row = host.data(wanted, source=False, synthetic=synthetic)
        assert (row["state"], row["detail"], host.files()) == ("ready", "synthetic", before)
    host.put(files)  # the real ones take their place, and stay
    assert host.data(wanted)["counts"] == wanted.counts
    assert host.data(wanted, source=False, synthetic=True)["counts"] == wanted.counts


def test_nothing_is_made_up_where_the_workload_generates_its_own(host: Host) -> None:
    wanted = replace(MAKERS["imagenet_tfrecord"]()[0], generated=True)
    row = host.data(wanted, source=False, synthetic=True)
    assert (row["state"], row["counts"]) == ("ready", {})
    assert "makes its own" in row["detail"]
    assert not (host.root / "set").exists()


def test_weights_are_never_made_up(host: Host) -> None:
    wanted, files = weights()
    assert host.data(wanted, source=False, synthetic=True)["state"] == "failed"
    host.put(files)
    assert host.data(wanted, synthetic=True)["state"] == "made"


# --- trouble -------------------------------------------------------------------------------


def test_killed_and_repeated(host: Host) -> None:
    wanted, _ = MAKERS["imagenet_tfrecord"]()
    making = host.root / ".set.making"
    command = host.command(wanted, source=False, synthetic=True)
    with subprocess.Popen(command) as process:
        wait_for(lambda: len(list(making.glob("train-*"))) > 20, "the first files")
        process.send_signal(signal.SIGKILL)
    assert not (host.root / "set").exists()
    kept = {path.name: path.stat().st_ino for path in making.glob("train-*")}
    assert 20 < len(kept) < 1024
    row = host.data(wanted, source=False, synthetic=True)
    assert (row["state"], row["counts"]) == ("made", SYNTHETIC["imagenet_tfrecord"])
    found = {name: inode for name, (inode, _) in host.files().items() if name in kept}
    assert found == kept
    assert [path for path in (host.root / "set").rglob(".*") if path.name != ".runkit-data.json"] == []


def test_what_was_begun_of_other_archives_is_begun_anew(host: Host) -> None:
    wanted, files = MAKERS["imagenet_folders"]()
    stale = host.root / ".set.making" / "train" / "n00000099"
    stale.mkdir(parents=True)
    host.put(files)
    assert host.data(wanted)["counts"] == wanted.counts
    assert not (host.root / "set" / "train" / "n00000099").exists()


def test_two_at_a_time(host: Host) -> None:
    wanted, files = weights()
    host.put(files)
    host.root.mkdir()
    with (host.root / ".runkit-data.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = host.command(wanted, source=True, synthetic=False)
        done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "another data command still works there" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Host]:
    """A host whose data root is a file system of 4 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(folder)]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("mounting a small file system takes root")
    yield Host(tmp_path, folder)
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_space_is_looked_at_first(small: Host) -> None:
    wanted, files = weights()
    small.put(files)
    row = small.data(replace(wanted, needs_gib=1.5))
    assert row["detail"].startswith(f"{small.root}: needs 1.5 GiB more, has 0.00")
    assert not (small.root / ".set.making").exists()
    assert small.data(wanted)["state"] == "made"


def test_a_disk_that_fills_up(small: Host) -> None:
    """What was done is kept, and the rest done once there is room."""
    packed = gzip.compress(tar({f"layer{i}": bytes(1 << 20) for i in range(3)}))
    wanted = dataset("weights", {"files": 4}, {"a.bin": b"a", "layers.tgz": packed})
    small.put({"a.bin": b"a", "layers.tgz": packed})
    detail = small.data(wanted)["detail"]
    assert "the disk is full; free space and run data again" in detail
    subprocess.run(["mount", "-o", "remount,size=32m", str(small.root)], check=True)
    assert small.data(wanted)["counts"] == {"files": 4}
    assert len(small.files()) == 4


def test_a_set_behind_a_link_lies_on_the_disk_that_it_leads_to(small: Host) -> None:
    """The data root has 4 MB, and the set wants more: room is asked of the disk that it will lie on."""
    wanted, files = weights()
    big = small.folder / "big"
    big.mkdir()
    (small.root / "set").symlink_to(big / "set")
    small.put(files)
    assert small.data(replace(wanted, needs_gib=0.01))["state"] == "made"
    assert (small.root / "set").is_symlink()
    assert sorted(path.name for path in big.iterdir()) == ["set"]
    assert (small.data(wanted)["state"], len(small.files())) == ("ready", 5)
    (big / "set" / "model.pth").unlink()  # made again behind the link
    assert small.data(wanted)["state"] == "made"
    assert (small.root / "set").is_symlink()


def test_a_mount_is_no_place_for_a_set(small: Host) -> None:
    wanted, files = weights()
    small.put(files)
    (small.folder / "other").mkdir()
    host = Host(small.folder / "other")
    host.put(files)
    host.root.mkdir()
    (host.root / "set").symlink_to(small.root)
    detail = host.data(wanted)["detail"]
    assert (
        detail == f"{small.root}: is a mount; put the set in a folder of that disk, and a link to it at set"
    )


# --- what runs on hosts --------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(PROGRAM.glob("*.py")), ids=lambda path: path.name)
def test_the_program_is_python_3_8_and_standard_library(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} - set(sys.stdlib_module_names) <= {"data_set"}


# --- the command ---------------------------------------------------------------------------


@pytest.fixture
def cluster(kit: Kit) -> Kit:
    kit.vary_cluster(cluster_data_root=str(kit.folder / "root"))
    return kit


def state(kit: Kit, wanted: Dataset) -> None:
    """Let the kit's workload read this set."""
    body = json.loads(json.dumps(records.encode(wanted)))
    kit.train(data=[body])


def test_the_command_prepares_checks_and_says_so(cluster: Kit) -> None:
    wanted, files = weights()
    state(cluster, wanted)
    source = cluster.folder / "downloads"
    source.mkdir()
    for name, data in files.items():
        (source / name).write_bytes(data)
    words = ("data", str(cluster.workload))
    absent = cluster.runner(*words)
    assert absent.returncode == 1
    assert "https://data.example.org/register (licence: research only)" in absent.stderr
    made = cluster.runner(*words, "--from", str(source))
    assert (made.returncode, made.stderr) == (0, "")
    heading, _, row = (
        [word.strip() for word in line.strip("|").split("|")] for line in made.stdout.splitlines()
    )
    assert heading == ["host", "data set", "state", "counts"]
    assert row == ["localhost", "set", "made", "files 5"]
    again = cluster.runner(*words, "--json")
    assert again.returncode == 0
    assert json.loads(again.stdout) == [
        {
            "host": "localhost",
            "folder": "set",
            "state": "ready",
            "counts": {"files": 5},
            "detail": "",
            "wants": [],
        }
    ]
    log = next(cluster.folder.glob("runs/data-*.log")).read_text()
    assert "changed=0" in log


def test_ctrl_c_ends_it_all_and_the_next_run_goes_on(cluster: Kit) -> None:
    state(cluster, MAKERS["imagenet_tfrecord"]()[0])
    root, making = cluster.folder / "root", cluster.folder / "root" / ".set.making"
    words = ("data", str(cluster.workload), "--synthetic")
    with subprocess.Popen(
        cluster.command(*words), cwd=cluster.folder, env=cluster.environment(TMPDIR=str(cluster.folder)),
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        wait_for(lambda: len(list(making.glob("train-*"))) > 20, "the first files")
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1]
    assert process.returncode == 128 + signal.SIGINT
    assert said.startswith("runkit: data ended by SIGINT")
    assert len(said.splitlines()) == 1
    with (root / ".runkit-data.lock").open("w") as lock:
        wait_for(lambda: is_free(lock), "the end of the work", 5)
    assert not list(cluster.folder.glob("runkit-data-*"))
    kept = {path.name: path.stat().st_ino for path in making.glob("train-*")}
    assert 20 < len(kept) < 1024
    assert cluster.runner(*words).returncode == 0
    assert {name: (root / "set" / name).stat().st_ino for name in kept} == kept


def is_free(lock: IO[str]) -> bool:
    """Whether nobody holds a lock, neither a program nor what it started."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def test_usage(cluster: Kit) -> None:
    state(cluster, weights()[0])
    for words, said in (
        (("no_such_workload",), "no such workload"),
        ((str(cluster.workload), "--from", "no/such/folder"), '--from "no/such/folder": no such folder'),
        ((str(cluster.workload), "--from", ""), '--from "": no such folder; name the one that holds'),
    ):
        done = cluster.runner("data", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1
    nothing = cluster.runner("data", "digits")
    assert (nothing.returncode, nothing.stdout) == (0, "")


STAND_IN = """#!/bin/sh
# What sshd does: hand the last word to a shell, at home.
for last; do :; done
cd "$(dirname "$0")/home" && exec sh -c "$last"
"""


def test_archives_are_sent_once_and_go_on_where_they_broke_off(cluster: Kit) -> None:
    """A host that is reached over a stand-in for ssh, and has a part of an archive already."""
    wanted, files = weights()
    state(cluster, wanted)
    source, root = cluster.folder / "downloads", cluster.folder / "root"
    source.mkdir()
    for name, data in files.items():
        (source / name).write_bytes(data)
    (cluster.folder / "home").mkdir()
    program = cluster.folder / "ssh"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    variables = {
        "ansible_host": "gpu1.example.org",
        "ansible_ssh_executable": str(program),
        "ansible_python_interpreter": sys.executable,
        "cluster_cards": 8,
    }
    (cluster.cluster / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"gpu1": variables}}}))
    cluster.vary_cluster(bench_agent_python=sys.executable)
    (root / "archives").mkdir(parents=True)
    (root / "archives" / ".backbone.tar.gz.part").write_bytes(files["backbone.tar.gz"][:50])
    words, piped = (
        ("data", str(cluster.workload), "--from", str(source)),
        {"ANSIBLE_SSH_TRANSFER_METHOD": "piped"},
    )
    made = cluster.runner(*words, **piped)
    assert made.returncode == 0, made.stderr
    assert "| gpu1   | set        | made    | files 5  |" in made.stdout
    assert "gpu1: backbone.tar.gz: goes on" in made.stderr
    assert {path.name: path.read_bytes() for path in (root / "archives").iterdir()} == files
    again = cluster.runner(*words, **piped)
    assert (again.returncode, again.stderr) == (0, "")
    assert "| ready   |" in again.stdout
