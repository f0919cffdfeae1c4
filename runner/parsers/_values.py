"""What the text of a value means: numbers, precisions, and what a file name says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from math import isfinite

from runner.model import Line, Record

_LEAST, _MOST = 1e-9, 1e15  # no rate, step time or figure of a training lies outside

_IN_NAMES = {  # patterns stay text, so that importing this costs nothing
    "cards": r"(?:n\d{1,4}c|gpux?|gpus|c|n)(\d{1,5})",
    "hosts": r"(\d{1,5})nodes?|n(\d{1,4})c\d{1,5}",
    "threads": r"(\d{1,4})threads?",
    "batch_size": r"bs(\d{1,7})",
    "precision": r"(fp32|fp16|tf32|bf16|amp)",
}
_DURATION = r"(?:(\d{1,5})h )?(?:(\d{1,2})m )?(\d{1,12}(?:\.\d{0,20})?) ?s(?:ec)?"
_PRECISIONS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "half": "fp16", "mixed": "amp"}


def number(text: str | None) -> float | None:
    """Read a figure: 0, or a finite number of a size that a figure can have; None for anything else."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if value == 0 or _LEAST <= abs(value) <= _MOST else None


def duration(text: str | None) -> float | None:
    """Read a time as seconds: ``12.5``, ``12.5sec``, ``12.5 s`` or ``1h 02m 03s``; None for anything else."""
    found = re.fullmatch(_DURATION, text or "", re.ASCII)
    if found is None:
        return number(text)
    hours, minutes, rest = (float(part or 0) for part in found.groups())
    return number(repr(3600 * hours + 60 * minutes + rest))


def count(text: str | None) -> int | None:
    """Read a number of things, 1 to 999,999,999; logs write some as ``8.0``. None for anything else."""
    value = number(text)
    return int(value) if value is not None and value == int(value) and 1 <= value < 1e9 else None


def fraction(text: str | None) -> float | None:
    """Read an accuracy in [0, 1]: as it is, or from a percentage (with its sign, or above 1)."""
    value = number((text or "").removesuffix("%").strip())
    if value is None or not 0 <= value <= 100:
        return None
    return value / 100 if value > 1 or (text or "").endswith("%") else value


def precision(text: str | None) -> str | None:
    """``fp32``, ``amp`` ... as the plan writes it; None where it is no precision."""
    word = (text or "").lower()
    word = _PRECISIONS.get(word, word)
    return word if re.fullmatch(_IN_NAMES["precision"], word) else None


def same_precision(one: str | None, other: str | None) -> bool:
    """Whether two precisions are equal; mixed precision is called both FP16 and AMP."""
    mixed = ("amp", "fp16")
    return one == other or (one in mixed and other in mixed)


def name_says(name: str) -> dict[str, str]:
    """Read what a file name such as ``tf_gpu8_amp_bs256.txt`` says, as text: the keys of _IN_NAMES."""
    words = re.split(r"[^a-z0-9]", name.rpartition("/")[2].lower())
    said = {}
    for key, pattern in _IN_NAMES.items():
        found = {max(match.groups("")) for word in words if (match := re.fullmatch(pattern, word))}
        if len(found) == 1:  # two different ones say nothing
            said[key] = found.pop()
    return said


def seconds(stamp: str | None) -> float | None:
    """Read a date and time as seconds since the epoch. Logs say no zone: only differences mean anything."""
    try:
        return datetime.fromisoformat((stamp or "").replace("/", "-")).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def to_record(values: Mapping[str, str], line: Line, scope: str) -> tuple[Record | None, bool, bool]:
    """Make the record of a line; whether its measurement is no number; whether its loss is none."""
    timed = scope == "seconds_per_step"
    stated = values.get("step_s" if timed else "rate")
    measure = number(stated)
    nan_loss = _is_not_finite(values.get("loss"))
    unmeasured = stated is None and "loss" in values  # there are logs whose only rate is the final one
    if not unmeasured and (measure is None or measure < 0 or (timed and measure == 0)):
        return None, stated not in (None, "None"), nan_loss
    time = number(values.get("time"))
    record = Record(
        line=line.number,
        step=_whole(values.get("step")),
        epoch=_whole(values.get("epoch")),
        rate=None if timed else measure,
        step_s=measure if timed else _step_seconds(values),
        loss=_loss(values.get("loss")),
        time=time if time is not None else seconds(values.get("stamp")),
        rank=line.rank,
        done=_done(values),
    )
    return record, False, nan_loss


def with_loss(record: Record, loss: str) -> tuple[Record, bool]:
    """Add the loss that stands below a record; whether it is no finite number."""
    return replace(record, loss=_loss(loss)), _is_not_finite(loss)


def _step_seconds(values: Mapping[str, str]) -> float | None:
    speed = number(values.get("speed"))  # steps a second
    return number(values.get("step_s")) if speed is None or speed <= 0 else 1 / speed


def _done(values: Mapping[str, str]) -> float | None:
    step, steps = count(values.get("step")), count(values.get("steps"))
    if step and steps and step <= steps:
        return step / steps
    return number(values.get("done"))


def _whole(text: str | None) -> int | None:
    return int(text) if text and len(text) <= 15 and text.isdecimal() else None


def _loss(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if isfinite(value) else None


def _is_not_finite(text: str | None) -> bool:
    try:
        return text is not None and not isfinite(float(text))
    except ValueError:
        return False
