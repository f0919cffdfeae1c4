"""Logs that were read, and which of them gives a cell of a layout its figure.

By name, as the publication names it; a run of one's own by what it is: family, model, cards, precision, batch
size; and, only where that is asked for, any log by what it is. Doubt gives no figure, and says why.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from runner.comparable import Terms, day, hardware
from runner.messages import Messages
from runner.model import LogRun
from runner.parsers import same_precision
from runner.rates import rate

_PACKED = re.compile(r"\.(?:gz|zst|xz|bz2)$", re.IGNORECASE)
_MODES = {"rate": "throughput", "accuracy": "accuracy"}  # of one's own runs, where cells of several modes fit


class Own(NamedTuple):
    """What a reading of one's own run was planned as: the cell without its repeat, mode, hosts, day."""

    cell: str
    mode: str
    gpu: str = ""
    driver: str = ""
    date: str = ""


class Reading(NamedTuple):
    """A log that was read: its name, its hash where it is one file, the runs found in it."""

    name: str
    sha256: str | None
    runs: tuple[LogRun, ...]
    own: Own | None = None

    @property
    def base(self) -> str:
        """Its name without folders, and without the ending that packing it added."""
        return _PACKED.sub("", self.name.rpartition("/")[2])


def terms_of(reading: Reading, run: LogRun, rule: str | None) -> Terms:
    """How a figure of a run came about: as its log says, and as its own run was planned."""
    own = reading.own or Own("", "")
    return Terms(
        rule=rule,
        unit=run.unit,
        precision=run.precision,
        batch_size=run.batch_size,
        hardware=hardware(run.gpu or own.gpu, run.driver or own.driver),
        mode=own.mode or None,
        date=own.date or day(run),
    )


class Wanted(NamedTuple):
    """What a cell shows and of which runs; ``names`` in the order in which they count; ``rule`` or None."""

    place: str  # for notes
    show: str
    cards: int
    precision: str | None
    batch_size: int | None
    family: str
    model: str
    names: tuple[str, ...]
    rule: str | None


class Choice(NamedTuple):
    """The run that gives a figure, and the figure. ``named``: its log is the one that was published."""

    reading: Reading
    run: LogRun
    value: float
    named: bool = False
    filled: bool = False


Chosen = tuple[Choice | None, tuple[str, ...]]  # and the notes on it


def choose(wanted: Wanted, readings: Sequence[Reading], fill: bool, say: Messages) -> Chosen:
    """Choose the run that a cell shows, or say why there is none; without a word where no log is at hand."""
    by_name = ([one for one in readings if one.own is None and one.base == name] for name in wanted.names)
    named = next((found for found in by_name if found), [])
    choice, notes = _named(wanted, named, say) if named else (None, ())
    if choice is not None:
        return choice, notes
    fitting = [
        Choice(reading, run, value, filled=reading.own is None)
        for reading in readings
        for run in reading.runs
        if (fill or reading.own) and _is(run, wanted, reading.own is not None)
        if (value := _value(run, wanted)) is not None
    ]
    own = [choice for choice in fitting if not choice.filled]
    choice, more = _own(wanted, own, say) if own else _any(wanted, fitting, say)
    return choice, (*notes, *more)


def rule_of(wanted: Wanted, run: LogRun) -> str | None:
    """Give the rule that a figure is taken by; None where it is no rate."""
    return (wanted.rule or run.rule) if wanted.show == "rate" else None


def _named(wanted: Wanted, named: Sequence[Reading], say: Messages) -> Chosen:
    """Choose among the logs of one name."""
    cell, log = wanted.place, named[0].name
    runs = [(reading, run) for reading in named for run in reading.runs]
    if not runs:
        return None, (say("not_understood", cell=cell, log=log),)
    fitting = [(reading, run) for reading, run in runs if not _contradictions(run, wanted)]
    if not fitting:
        key, says = next(iter(_contradictions(runs[0][1], wanted).items()))
        return None, (say("contradicts", cell=cell, log=runs[0][0].name, what=say(key), says=says),)
    if not _copies([reading for reading, _ in fitting]):
        return None, (say("several_logs", cell=cell, log=log),)
    same = [run for reading, run in fitting if reading is fitting[0][0]]  # the same log may be there twice
    if len(same) > 1:
        return None, (say("several_runs", cell=cell, log=log, n=len(same)),)
    return _single(wanted, *fitting[0], say)


def _single(wanted: Wanted, reading: Reading, run: LogRun, say: Messages) -> Chosen:
    value = _value(run, wanted)
    if value is not None:
        return Choice(reading, run, value, named=True), ()
    if wanted.show != "rate":  # a log of speed alone says no time or accuracy, and need not
        return None, ()
    return None, (say("no_figure", cell=wanted.place, log=reading.name, rule=rule_of(wanted, run)),)


def _own(wanted: Wanted, fitting: Sequence[Choice], say: Messages) -> Chosen:
    """Choose among one's own runs: the median of the repeats of one cell."""
    mode = _MODES.get(wanted.show, "time_to_train")
    modes = {choice.reading.own.mode for choice in fitting if choice.reading.own}
    kept = [one for one in fitting if one.reading.own and (mode not in modes or one.reading.own.mode == mode)]
    if len({choice.reading.own for choice in kept}) > 1:
        return None, (_several(wanted, kept, say),)
    ordered = sorted(kept, key=lambda choice: choice.value)
    notes = (say("median_of", cell=wanted.place, n=len(kept)),) if len(kept) > 1 else ()
    return ordered[(len(kept) - 1) // 2], notes


def _any(wanted: Wanted, fitting: Sequence[Choice], say: Messages) -> Chosen:
    """Take the one log that fits a cell which its publication, or the lack of its log, left blank."""
    if not fitting:
        return None, ()
    runs = [choice for choice in fitting if choice.reading is fitting[0].reading]
    if len(runs) > 1 or not _copies([choice.reading for choice in fitting]):
        return None, (_several(wanted, fitting, say),)
    choice = fitting[0]
    rule = rule_of(wanted, choice.run) or say("as_logged")
    return choice, (say("filled", cell=wanted.place, log=choice.reading.name, rule=rule),)


def _several(wanted: Wanted, fitting: Sequence[Choice], say: Messages) -> str:
    logs = ", ".join(dict.fromkeys(choice.reading.name for choice in fitting))
    return say("several_fit", cell=wanted.place, logs=logs)


def _copies(readings: Sequence[Reading]) -> bool:
    """Whether the logs are one: the same bytes, or, packed in another way, the same records."""
    first = readings[0]
    return all(
        (one.sha256 is not None and one.sha256 == first.sha256) or _records(one) == _records(first)
        for one in readings
    )


def _records(reading: Reading) -> list[object]:
    return [(run.family, run.records, run.rates.get("summary")) for run in reading.runs]


def _is(run: LogRun, wanted: Wanted, own: bool) -> bool:
    """Whether a run is what a cell is about. What it does not say is no match; one's own run is known."""
    known = run.model is None and own
    return (
        run.kind == "training"
        and run.family == wanted.family
        and (known or _letters(run.model or "") == _letters(wanted.model))
        and (run.cards, run.batch_size) == (wanted.cards, wanted.batch_size)
        and same_precision(run.precision, wanted.precision)
    )


def _letters(model: str) -> str:
    return re.sub(r"[\W_]", "", model).lower()


def _contradictions(run: LogRun, wanted: Wanted) -> dict[str, object]:
    """Collect what a log says of itself where the layout says otherwise; silence contradicts nothing."""
    pairs = {"cards": (run.cards, wanted.cards), "batch_size": (run.batch_size, wanted.batch_size)}
    wrong: dict[str, object] = {
        key: says for key, (says, want) in pairs.items() if says and want and says != want
    }
    if run.precision and wanted.precision and not same_precision(run.precision, wanted.precision):
        wrong["precision"] = run.precision
    return wrong


def _value(run: LogRun, wanted: Wanted) -> float | None:
    if wanted.show == "rate":
        return rate(run, wanted.rule or run.rule)
    if wanted.show == "accuracy":
        return None if run.accuracy is None else 100 * run.accuracy
    return run.time_to_train_s if wanted.show == "time_to_train_s" else run.time_to_target_s
