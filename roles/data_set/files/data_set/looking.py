"""What there is of a job's data sets on this host, and what it takes to make the rest."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from data_set import cityscapes, coco_tfrecord, imagenet, imagenet_folders, imagenet_tfrecord, weights
from data_set.files import GIB, DataError, is_safe, read_json

KINDS: Mapping[str, Any] = {
    "coco_tfrecord": coco_tfrecord,
    "imagenet_folders": imagenet_folders,
    "imagenet_tfrecord": imagenet_tfrecord,
    "cityscapes": cityscapes,
    "weights": weights,
}
STATE = ".runkit-data.json"
SYNTHETIC_BYTES = 256 << 20  # more than any synthetic set takes

Row = Dict[str, Any]


class Job(NamedTuple):
    """What is asked of this host: ``sent`` has the size of each archive that the controller has for it."""

    root: Path
    source: Optional[Path]  # archives that can be read in place
    named: str  # where the user keeps archives, for messages
    sent: Mapping[str, int]
    synthetic: bool
    sets: List[Mapping[str, Any]]
    order: Optional[Path]  # where this is the controller: there while the command that wants it goes on

    @property
    def wanted(self) -> bool:
        """Whether somebody still waits for it, as far as one can see from here."""
        return self.order is None or self.order.exists()

    @property
    def arrived(self) -> Path:
        """Where archives from elsewhere lie."""
        return self.root / "archives"


def job(document: Mapping[str, Any]) -> Job:
    """The job that a file states; it comes from runkit itself."""
    source = document["source"]
    return Job(
        Path(document["root"]),
        Path(source) if source else None,
        document["named"],
        document["sent"],
        document["synthetic"],
        document["sets"],
        Path(document["order"]) if document["order"] else None,
    )


def new_row(stated: Mapping[str, Any], state: str, **more: Any) -> Row:
    """What is said of a set: ready, made, failed, or missing where it can be made."""
    return {
        "folder": stated["folder"],
        "state": state,
        "counts": {},
        "detail": "",
        "wants": [],
        "space": [],
        **more,
    }


# --- what is there -------------------------------------------------------------------------


def look(asked: Job, stated: Mapping[str, Any]) -> Row:
    """Ready, or failed for good; "missing" where it can be made, with the ``space`` that takes, and where."""
    if not is_safe(stated["folder"]) or stated["kind"] not in KINDS:
        raise DataError(f"{stated['folder']}: neither folder nor kind {stated['kind']} can be served")
    place, kind = place_of(asked, stated), KINDS[stated["kind"]]
    note = read_json(place / STATE)
    found, wrong = _found(place, kind, note, stated)
    real_wanted = asked.named and note.get("synthetic")
    if found and not real_wanted:
        return new_row(stated, "ready", counts=found, detail="synthetic" if note.get("synthetic") else "")
    if asked.synthetic and stated["generated"]:
        return new_row(stated, "ready", detail="none needed: the workload makes its own input")
    if place.exists() and not note and (not place.is_dir() or any(place.iterdir())):
        raise DataError(f"{place}: is not of runkit's making and not whole ({wrong}); move it away")
    if note and note.get("kind") != stated["kind"]:
        raise DataError(f"{place}: holds {note.get('kind')}, not {stated['kind']}; move it away")
    if place.is_mount():  # a whole set is moved to its place, which a mount cannot leave
        text = f"is a mount; put the set in a folder of that disk, and a link to it at {stated['folder']}"
        raise DataError(f"{place}: {text}")
    if asked.synthetic and kind.SYNTHETIC is not None:
        return new_row(stated, "missing", space=[(_disk(place.parent), SYNTHETIC_BYTES)])
    names = archive_names(asked, stated, f"{wrong}, and cannot be made up" if asked.synthetic else wrong)
    absent = [name for name in names if located(asked, name) is None]
    return new_row(stated, "missing", wants=absent, space=_space(asked, stated, names))


def _found(place: Path, kind: Any, note: Mapping[str, Any], stated: Mapping[str, Any]) -> Any:
    """The counts of a set that is whole, else {}; and what is wrong with it."""
    if not place.is_dir():
        return {}, "it is not there"
    wanted = note.get("counts") if note.get("synthetic") else stated["counts"]
    try:
        known = kind.FLAT and note.get("sizes") and note["sizes"] == sizes(place)
        return agreed(note["found"] if known else kind.count(place), wanted or {}), ""
    except DataError as error:
        return {}, str(error)


def sizes(folder: Path) -> Dict[str, int]:
    """Bytes of each file: a set of large files that has the same is not read through again."""
    paths = (path for path in folder.rglob("[!.]*") if path.is_file())
    return {str(path.relative_to(folder)): path.stat().st_size for path in sorted(paths)}


def synthetic_counts(stated: Mapping[str, Any]) -> Dict[str, int]:
    """Those of a synthetic set: of the parts that the workload reads."""
    counts: Mapping[str, int] = KINDS[stated["kind"]].SYNTHETIC
    return {key: number for key, number in counts.items() if key == "classes" or stated["counts"].get(key)}


def agreed(found: Dict[str, int], wanted: Mapping[str, int]) -> Dict[str, int]:
    """What was found, if it is what is wanted. Raises DataError."""
    for key, number in wanted.items():
        if number and found.get(key, 0) != number:
            raise DataError(f"{key}: {found.get(key, 0)}, must be {number}")
    if not any(found.values()):
        raise DataError("it is empty")
    return found


def archive_names(asked: Job, stated: Mapping[str, Any], wrong: str) -> List[str]:
    """The archives to make a set of. Raises DataError with what is missing, and where to get it."""
    names = KINDS[stated["kind"]].needed(stated["counts"]) or [each["name"] for each in stated["archives"]]
    if names == [cityscapes.ONE] and not _known(asked, cityscapes.ONE):
        others = list(cityscapes.OFFICIAL)
        names = others if any(_known(asked, name) for name in others) else names
    missing = [name for name in names if not _known(asked, name)]
    if missing:
        where = f"in {asked.named}" if asked.named else f"in {asked.arrived}, and no --from names a folder"
        raise DataError(f"{wrong}; {', '.join(missing)}: not {where}; {_advice(stated, missing)}")
    return names


def _advice(stated: Mapping[str, Any], missing: List[str]) -> str:
    advice = (
        f"get what is missing at {stated['register']} (licence: {stated['licence']}), then data --from FOLDER"
    )
    if imagenet.LABELS in missing:
        advice += f"; {imagenet.LABELS} is in tensorflow/models, research/slim/datasets"
    if cityscapes.ONE in missing:
        advice += f"; {' and '.join(cityscapes.OFFICIAL)} do in its place"
    return advice


def _known(asked: Job, name: str) -> bool:
    return name in asked.sent or located(asked, name) is not None


def located(asked: Job, name: str) -> Optional[Path]:
    """Where an archive lies on this host."""
    for folder in (asked.source, asked.arrived):
        if folder and is_safe(name) and (folder / name).is_file():
            return folder / name
    return None


# --- space ---------------------------------------------------------------------------------


def _space(asked: Job, stated: Mapping[str, Any], names: List[str]) -> List[Tuple[str, int]]:
    """Bytes that making a set takes yet, and where: the set's, and those of archives still to come."""
    paths = {name: located(asked, name) for name in names}
    sizes = {name: path.stat().st_size if path else asked.sent[name] for name, path in paths.items()}
    to_come = sum(size for name, size in sizes.items() if paths[name] is None)
    parts = (asked.arrived / f".{name}.part" for name in names)
    here = sum(path.stat().st_size for path in parts if path.exists())
    made = sum(path.stat().st_size for path in staging(asked, stated).rglob("*") if path.is_file())
    whole = max(int(stated["needs_gib"] * GIB), sum(sizes.values()))
    disks = _disk(place_of(asked, stated).parent), _disk(asked.arrived)
    return list(zip(disks, (max(0, whole - made), max(0, to_come - here))))


def _disk(folder: Path) -> str:
    """A folder that is there, on the disk that this one will be on."""
    return str(next(path for path in (folder, *folder.parents) if path.exists()))


def reserve(rows: List[Row]) -> None:
    """Refuse, in the order of the sets, those that a disk has no room for beside the ones before them."""
    free: Dict[int, int] = {}
    for row in (row for row in rows if row["state"] == "missing"):
        needs: Dict[int, int] = {}
        for folder, number in row["space"]:
            disk = os.stat(folder).st_dev
            needs[disk] = needs.get(disk, 0) + number
            if needs[disk] > free.setdefault(disk, shutil.disk_usage(folder).free):
                wrong = f"needs {needs[disk] / GIB:.3g} GiB more, has {max(free[disk], 0) / GIB:.3g} GiB left"
                detail = f"{folder}: {wrong}; free space, or set cluster_data_root"
                row.update(state="failed", detail=detail, wants=[])
        for disk, number in needs.items() if row["state"] == "missing" else ():
            free[disk] -= number


def place_of(asked: Job, stated: Mapping[str, Any]) -> Path:
    """Where a set lies. A link there leads to another disk, and stays."""
    place: Path = asked.root / stated["folder"]
    return place.resolve() if place.is_symlink() else place


def staging(asked: Job, stated: Mapping[str, Any]) -> Path:
    """Where a set is made, on the disk of its place."""
    place = place_of(asked, stated)
    return place.with_name(f".{place.name}.making")
