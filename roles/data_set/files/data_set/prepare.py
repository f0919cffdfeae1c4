"""The data sets of a job on this host: what is ready stays, what is not is made beside its place."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping

from data_set import archives, jpeg, looking, work
from data_set.files import DataError, explained, read_json, remove, write_json
from data_set.looking import KINDS, STATE, Job, Row

_PATIENCE_S = 2.0  # how long a preparation that was just killed may take to go


def everything(asked: Job, make: bool) -> Dict[str, Any]:
    """A row per data set, and with ``make`` the sets themselves; "held": bytes of archives come in part."""
    asked.root.mkdir(parents=True, exist_ok=True)
    with (asked.root / ".runkit-data.lock").open("w") as lock:
        _hold(lock.fileno(), asked.root)
        for name, size in asked.sent.items():
            archives.received(asked.arrived, name, size)
        rows = [_guarded(looking.look, asked, each) for each in asked.sets]
        looking.reserve(rows)
        if make:
            rows = [_guarded(_made, asked, each, row) for each, row in zip(asked.sets, rows)]
        elif any(row["wants"] for row in rows):
            asked.arrived.mkdir(exist_ok=True)
        parts = {name: asked.arrived / f".{name}.part" for name in asked.sent}
        held = {name: path.stat().st_size for name, path in parts.items() if path.exists()}
    return {"sets": rows, "held": held}


def _hold(handle: int, root: Path) -> None:
    """One preparation at a time; the processes it starts hold the lock with it."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > until:
                text = "another data command still works there; wait for it, then run data again"
                raise DataError(f"{root}: {text}") from error
            time.sleep(0.1)


def _guarded(step: Any, asked: Job, stated: Mapping[str, Any], *more: Any) -> Row:
    """A set that fails does not keep the others from being made."""
    try:
        done: Row = step(asked, stated, *more)
        return done
    except DataError as error:
        return looking.new_row(stated, "failed", detail=str(error))
    except OSError as error:
        return looking.new_row(stated, "failed", detail=explained(error))


# --- making --------------------------------------------------------------------------------


def _made(asked: Job, stated: Mapping[str, Any], row: Row) -> Row:
    if row["state"] != "missing":
        return row
    if row["wants"]:
        raise DataError(
            f"{', '.join(row['wants'])}: did not arrive; run data again, it goes on where it ended"
        )
    kind, folder = KINDS[stated["kind"]], looking.staging(asked, stated)
    synthetic = asked.synthetic and kind.SYNTHETIC is not None
    names = [] if synthetic else looking.archive_names(asked, stated, "")
    digests = {name: _verified(asked, stated, name) for name in names}
    counts = looking.synthetic_counts(stated) if synthetic else dict(stated["counts"])
    note = {
        **{"schema": "runkit/data", "version": 1, "kind": stated["kind"]},
        **{"counts": counts, "synthetic": synthetic, "archives": digests},
    }
    if read_json(folder / STATE) != note:  # begun of other archives, or never
        remove(folder)
        folder.mkdir(parents=True)
        write_json(folder / STATE, note)
    if synthetic:
        sample = folder / ".sample.jpg"
        sample.write_bytes(jpeg.SAMPLE)
        tasks = kind.pretend(sample, counts)
    else:
        tasks = kind.tasks({name: looking.located(asked, name) for name in names}, counts, folder)
    work.do(_distinct(tasks), folder, lambda: asked.wanted)
    found = _finished(folder, kind, counts)
    if kind.FLAT:
        note.update(found=found, sizes=looking.sizes(folder))
        write_json(folder / STATE, note)
    os.sync()
    place = looking.place_of(asked, stated)
    remove(place)
    os.replace(folder, place)
    return looking.new_row(stated, "made", counts=found, detail="synthetic" if synthetic else "")


def _distinct(tasks: Any) -> List[work.Task]:
    found = list(tasks)
    if len({task.name for task in found}) < len(found):
        raise DataError("two files of the archives would have the same name; get them again")
    return found


def _verified(asked: Job, stated: Mapping[str, Any], name: str) -> str:
    path = looking.located(asked, name)
    if path is None:
        raise DataError(f"{name}: is gone; run data again")
    checks: Mapping[str, Any] = next((each for each in stated["archives"] if each["name"] == name), {})
    try:
        return archives.verify(path, checks, asked.root / ".runkit-verified.json")
    except DataError:
        if path.parent == asked.arrived and name in asked.sent:
            remove(path)  # it is sent again next time
        raise


def _finished(folder: Path, kind: Any, counts: Mapping[str, int]) -> Dict[str, int]:
    """Count what was made. What is wrong in spite of all is not kept."""
    for path in folder.iterdir():
        if path.name.startswith(".") and path.name != STATE:
            remove(path)
    try:
        found = looking.agreed(kind.count(folder), counts)
    except DataError:
        remove(folder)
        raise
    return found
