"""From results to tables of text. Numbers keep full precision until here; each kind has one format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from statistics import median
from typing import NamedTuple

from runner.comparable import MARK, Terms, Unlike, unlike, why
from runner.messages import Messages, messages
from runner.model import LogRun, Result, Table

BLANK = "-"

Setting = tuple[str, int]  # precision, batch size per card


class Point(NamedTuple):
    """The repeats of one cell of a table: its cards and setting, and what became of each of them."""

    cards: int
    setting: Setting
    repeats: tuple[Result, ...]

    @property
    def measured(self) -> list[Result]:
        """The repeats that gave a measurement."""
        return [result for result in self.repeats if result.state == "measured"]

    def value(self, figure: Callable[[Result], float | None]) -> float | None:
        """Take the median over the repeats that have the figure; None where none has."""
        values = [value for result in self.measured if (value := figure(result)) is not None]
        return median(values) if values else None


def tables(results: Sequence[Result], shared_note: str | None = None, language: str = "en") -> list[Table]:
    """Tabulate results: the throughput per workload and mode, then all per precision and batch size.

    Repeats are shown as their median. What was not measured shows its state, with the reason in a note; what
    was not asked for shows ``-``. Rates are in the title's unit, times in seconds, accuracies in percent;
    the speed-up is the rate over that of 1 card. ``shared_note`` stands under each table.
    """
    say = messages(language)
    made: list[Table] = []
    for key in dict.fromkeys((result.workload, result.mode, result.unit) for result in results):
        mine = [result for result in results if (result.workload, result.mode, result.unit) == key]
        points = _points(mine)
        own = (shared_note,) if shared_note else ()
        made.append(_throughput(key, points, own, say))
        for setting in _settings(points):
            made.append(_results(key, setting, [one for one in points if one.setting == setting], own, say))
    return made


def found(runs: Iterable[LogRun], language: str = "en") -> Table:
    """Tabulate what was found in logs, one row per run."""
    say = messages(language)
    keys = (
        "cards",
        "precision",
        "batch_size",
        "rate",
        "unit",
        "rule",
        "records",
        "family",
        "log",
        "problems",
    )
    return Table(
        title=say("found_in_logs"),
        columns=tuple(say(key) for key in keys),
        rows=tuple(
            (
                _word(run.cards),
                _word(run.precision),
                _word(run.batch_size),
                show(run.rate, ".2f"),
                run.unit,
                run.rule,
                str(len(run.records)),
                run.family,
                run.log,
                ", ".join(dict.fromkeys(problem.code for problem in run.problems)) or BLANK,
            )
            for run in runs
        ),
    )


def show(value: float | None, form: str) -> str:
    """Show a number by one format; ``-`` where there is none."""
    return BLANK if value is None else format(value, form)


def heading(precision: str, batch_size: int) -> str:
    """Head a column as publications do: ``FP32(BS=32)``."""
    return f"{precision.upper()}(BS={batch_size})"


def _throughput(
    key: tuple[str, str, str], points: Sequence[Point], own: tuple[str, ...], say: Messages
) -> Table:
    workload, mode, unit = key
    settings, by_place = _settings(points), {(point.cards, point.setting): point for point in points}
    rows = [
        (str(cards), *(_rate(by_place.get((cards, setting))) for setting in settings))
        for cards in sorted({point.cards for point in points})
    ]
    return Table(
        title=say("throughput_of", workload=workload, mode=mode, unit=unit),
        columns=(say("cards"), *(_marked(setting, points) for setting in settings)),
        rows=tuple(rows),
        notes=(*_notes(points, say), *own),
    )


def _results(
    key: tuple[str, str, str], setting: Setting, points: Sequence[Point], own: tuple[str, ...], say: Messages
) -> Table:
    workload, mode, unit = key
    targeted = any(point.value(lambda result: result.time_to_target_s) is not None for point in points)
    heads = [
        "cards",
        "time_to_train",
        *(["time_to_target"] if targeted else []),
        "rate",
        "accuracy",
        "speed_up",
    ]
    base = next((point for point in points if point.cards == 1), None)
    one = base.value(lambda result: result.rate) if base else None
    rows = []
    unlike_notes: list[str] = []
    for point in sorted(points, key=lambda point: point.cards):
        rate = point.value(lambda result: result.rate)
        accuracy = point.value(lambda result: result.accuracy)
        cells = [str(point.cards), show(point.value(lambda result: result.time_to_train_s), ".3f")]
        if targeted:
            cells.append(show(point.value(lambda result: result.time_to_target_s), ".3f"))
        cells += [
            _rate(point),
            show(None if accuracy is None else 100 * accuracy, ".2f"),
            show(rate / one if rate is not None and one else None, ".2f"),
        ]
        if rate is not None and one and base is not None and (differences := _unlike(point, base)):
            cells[-1] += MARK
            place = say("cell", cards=point.cards, setting=heading(*setting))
            reasons = why(differences, say)
            unlike_notes.append(f"{MARK} " + say("unlike", cell=place, base=say("one_card"), why=reasons))
        rows.append(tuple(cells))
    title = say("results_of", workload=workload, mode=mode, unit=unit, setting=_marked(setting, points))
    return Table(
        title, tuple(say(head) for head in heads), tuple(rows), (*_notes(points, say), *unlike_notes, *own)
    )


def _unlike(point: Point, base: Point) -> Unlike:
    """In what any repeat of a point differs from any of the point that its speed-up is over."""
    pairs = product(point.measured, base.measured)
    found = {key: pair for one, other in pairs for key, pair in unlike(_terms(one), _terms(other)).items()}
    return {} if point is base else found


def _terms(result: Result) -> Terms:
    parts = result.hardware
    return Terms(*(result.rule, result.unit, result.precision, result.batch_size), parts, result.mode)


def _marked(setting: Setting, points: Sequence[Point]) -> str:
    """The heading of a setting, marked where its batch size is the user's own."""
    unlisted = any(
        not result.listed for point in points if point.setting == setting for result in point.repeats
    )
    return heading(*setting) + ("*" if unlisted else "")


def _rate(point: Point | None) -> str:
    if point is None:
        return BLANK
    return show(point.value(lambda result: result.rate), ".2f") if point.measured else point.repeats[-1].state


def _notes(points: Iterable[Point], say: Messages) -> list[str]:
    notes = []
    for point in points:
        if not all(result.listed for result in point.repeats):
            notes.append(say("unlisted", batch_size=point.setting[1]))
        cell = say("cell", cards=point.cards, setting=heading(*point.setting))
        done, asked = len(point.measured), len(point.repeats)
        if done and asked > 1:
            notes.append(say("median_of" if done == asked else "some_repeats", cell=cell, n=done, of=asked))
        for result in point.repeats:
            if result.state != "measured":
                reason = result.reason or say("no_reason")
                notes.append(say("not_measured", cell=cell, state=result.state, reason=reason))
            else:
                notes += [
                    say("problem", cell=cell, code=problem.code, detail=problem.detail)
                    for problem in result.problems
                ]
    return list(dict.fromkeys(notes))


def _points(results: Iterable[Result]) -> list[Point]:
    """Put the repeats of a cell together, in the order of the results."""
    groups: dict[tuple[int, Setting], list[Result]] = {}
    for result in results:
        groups.setdefault((result.cards, (result.precision, result.batch_size)), []).append(result)
    return [Point(cards, setting, tuple(repeats)) for (cards, setting), repeats in groups.items()]


def _settings(points: Iterable[Point]) -> list[Setting]:
    """List precisions in the order of the results, the batch sizes of each from small to large."""
    precisions = list(dict.fromkeys(point.setting[0] for point in points))
    return sorted({point.setting for point in points}, key=lambda one: (precisions.index(one[0]), one[1]))


def _word(value: object) -> str:
    return BLANK if value is None else str(value)
