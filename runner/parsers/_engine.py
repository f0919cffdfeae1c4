"""The tables that a family of logs is written as, and the one pass that matches them against lines.

A family is one module of this package with ``FAMILY = Family(...)``: a table of rows, one per kind of line.
A row's pattern is the whole grammar of its line (it must match from end to end, spaces around it aside); its
named groups, and the keys that ``pairs`` finds, are what the line says. ``fields`` renames them to ours:

    of a record      step epoch rate step_s loss done time (seconds), stamp (date and time), steps (of all),
                     speed (steps a second)
    of a run         cards hosts host (the name of one) cards_per_host batch_size global_batch precision
                     amp (True or False) unit model framework framework_version gpu driver nccl transport
    of its outcome   accuracy (a fraction, or a percentage with its sign), time_to_train_s, time_to_target_s
    the rest         summary.KEY: a final figure of the log's own; facts.KEY: what only this family says;
                     of both, the last word holds, on whatever line it stands;
                     section: the part of the log that begins here, for rows that count only within one

Patterns are kept as text: they are compiled on first use, so that finding the families costs nothing, and
``Family.progress`` hands them to hosts whose Python is 3.8. They are matched against hostile text: bound
every repetition of digits, and let no two neighbouring parts match the same text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from types import MappingProxyType
from typing import NamedTuple

from runner.errors import UsageError
from runner.model import Line, LogRun, Record
from runner.parsers._literal import literal
from runner.parsers._values import number, to_record, with_loss

_NONE: Mapping[str, str] = MappingProxyType({})

_OF_RECORD = frozenset(["step", "epoch", "rate", "step_s", "speed", "loss", "done", "time", "stamp", "steps"])

HITS_LIMIT = 2_000_000  # lines of one log that matter
NUMBER = r"[-+]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][-+]?\d{1,3})?"
FIGURE = rf"(?:{NUMBER}|[-+]?(?:nan|NaN|NAN|inf|Inf|INF|Infinity)|None)"  # or what stands in its place


class Row(NamedTuple):
    """One kind of line.

    ``start`` begins a run, ``record`` is a measurement, ``summary`` holds final figures, ``note`` anything
    else. Records and summaries prove the family. Where a measurement takes several lines, the one with its
    figure is the record, a ``head`` says more above and a ``tail`` its loss below. ``end`` marks lines that
    only a finished training writes. ``pairs`` finds key and value (groups 1 and 2) anywhere in the line; keys
    that ``fields`` does not name are passed over. ``means`` is what the line says without a figure. One with
    ``within`` counts only in that section. What a note repeats may be of the next run; ``behind`` knows.
    """

    kind: str
    pattern: str
    fields: Mapping[str, str] = _NONE
    pairs: str | None = None
    end: bool = False
    means: Mapping[str, str] = _NONE
    within: str | None = None
    behind: bool | None = None


def unchanged(run: LogRun) -> LogRun:
    """Leave the run as it is: for families whose table says everything."""
    return run


class Family(NamedTuple):
    """One log line grammar; see the head of this module.

    ``scope`` is what a record's rate speaks of and ``rule`` the family's own way to one figure (see
    ``runner.rates``); ``summary`` is the figure that rule ``summary`` means. Every line of the grammar holds
    one of ``words``, and a line that holds ``near`` looks like a record to a reader: where the grammar does
    not fit it, it is counted. A family with ``last_resort`` counts only where no other family of its kind is
    proved. ``running`` is for records that are running means: (first, most), those of the steps after the
    first, and of ``most`` at most. ``finish`` is for what a table cannot say.
    """

    name: str
    framework: str | None
    model: str | None
    unit: str
    scope: str
    rule: str
    words: tuple[str, ...]
    near: str
    rows: tuple[Row, ...]
    summary: str | None = None
    summary_scope: str = "global"
    kind: str = "training"
    finish: Callable[[LogRun], LogRun] = unchanged
    last_resort: bool = False
    running: tuple[int, int] | None = None

    @property
    def progress(self) -> str:
        """A regular expression, as text, that ``search`` finds in the bytes of exactly the record lines."""
        rows = [re.sub(r"\(\?P<\w+>", "(?:", row.pattern) for row in self.rows if row.kind == "record"]
        colour = r"\x1b\[[0-9;]*m"
        bar = r"\[\d{1,4}:\d\d[^\[\]]{0,200}(?:/s|s/)[^\[\]]{0,200}\]"  # to whose end a record may be glued
        return rf"(?:^|\r|{colour}|{bar})\s*(?:{'|'.join(rows) or '(?!)'})\s*(?:{colour}\s*)*$"


class Hit(NamedTuple):
    """A line that a row fits, or (``row`` None) one that only looks like a record.

    ``bad``: there should be a figure in it, and there is none that can be used.
    """

    line: Line
    row: Row | None
    values: Mapping[str, str] = _NONE
    record: Record | None = None
    bad: bool = False
    nan_loss: bool = False
    last_step: bool = False

    @property
    def kind(self) -> str:
        """The kind of its row; ``near`` where it only looks like a record."""
        return self.row.kind if self.row else "near"

    @property
    def is_end(self) -> bool:
        """Whether only a finished training writes this line."""
        return self.last_step or (self.row is not None and self.row.end)


class Found:
    """What one family's grammar found in a log, in order.

    ``touched`` is the first line that holds one of its words and nothing more.
    """

    def __init__(self, family: Family) -> None:
        self.family = family
        self.hits: list[Hit] = []
        self.touched: Line | None = None

    def add(self, hit: Hit) -> None:
        """Keep a hit; a tail goes into its record. Raises UsageError on more than HITS_LIMIT hits."""
        if hit.kind not in ("head", "tail"):
            if len(self.hits) >= HITS_LIMIT:
                raise UsageError(f"more than {HITS_LIMIT} lines with figures in one log; split it")
            self.hits.append(hit)
            return
        self.touched = self.touched or hit.line
        last = self.hits[-1] if self.hits else hit
        if hit.kind == "tail" and last.record is not None and last.line.rank == hit.line.rank:
            record, nan_loss = with_loss(last.record, hit.values["loss"])
            self.hits[-1] = last._replace(record=record, nan_loss=nan_loss)

    @property
    def proved(self) -> bool:
        """Whether the whole grammar of a record or a summary fitted a line."""
        return any(hit.row is not None and hit.row.kind in ("record", "summary") for hit in self.hits)

    @property
    def nearest(self) -> tuple[int, Line] | None:
        """The line that comes nearest to a record where none fitted; how near, from 0.

        0: it looks like one. 1: it fits the grammar, and holds no measurement. 2: it holds a word, no more.
        """
        like = next((hit.line for hit in self.hits if hit.row is None), None)
        if like is not None:
            return 0, like
        if self.hits:
            return 1, self.hits[-1].line
        return None if self.touched is None else (2, self.touched)


def words_of(families: Iterable[Family]) -> tuple[str, ...]:
    """Give what to look for in a log: a line without any of them says nothing to the families."""
    return tuple(dict.fromkeys(word for family in families for word in family.words))


def scan(lines: Iterable[Line], families: Sequence[Family]) -> list[Found]:
    """Match every line against every family, in one pass. Raises UsageError on more than HITS_LIMIT hits."""
    every = [Found(family) for family in families]
    matchers = [Matcher(family) for family in families]
    looking: dict[str, list[int]] = {}
    for place, family in enumerate(families):
        for word in family.words:
            looking.setdefault(word, []).append(place)
    for line in lines:
        text = line.text
        places = {place for word in looking if word in text for place in looking[word]}
        hits = {place: hit for place in places if (hit := matchers[place].hit(line)) is not None}
        claimed = any(hit.kind in ("record", "summary") for hit in hits.values())
        for place in places:
            hit = hits.get(place) or (None if claimed else matchers[place].near(line))
            if hit is not None:
                every[place].add(hit)
            elif every[place].touched is None:
                every[place].touched = line
    proved = {found.family.kind for found in every if found.proved and not found.family.last_resort}
    return [found for found in every if not (found.family.last_resort and found.family.kind in proved)]


@cache
def _regex(pattern: str) -> re.Pattern[str]:
    """Compile a pattern when it is first needed, and once: a log touches few of the hundreds there are."""
    return re.compile(pattern, re.ASCII)


class Matcher:
    """The rows of a family, and where in the log it is: the section, the head of the next record."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.section: str | None = None
        self.head: tuple[int | None, Mapping[str, str]] = (None, _NONE)

    @cached_property
    def _rows(self) -> list[tuple[Row, str]]:
        return [(row, literal(row.pattern)) for row in self.family.rows]

    def fit(self, text: str) -> tuple[Row, dict[str, str]] | None:
        """Find the first row that fits, and what the line says in our words."""
        text = text.strip()
        for row, needed in self._rows:
            if needed not in text or row.within not in (None, self.section):
                continue
            match = _regex(row.pattern).fullmatch(text)
            if match is None:
                continue
            ours = row.fields
            said = {key: value for key, value in match.groupdict().items() if value is not None}
            values = {**row.means, **{ours.get(key, key): value for key, value in said.items()}}
            for key, value in _regex(row.pairs).findall(text) if row.pairs else ():
                if key in ours:
                    values.setdefault(ours[key], value.strip('"'))
            self.section = values.pop("section", self.section)
            return row, values
        return None

    def hit(self, line: Line) -> Hit | None:
        """Read a line; None where no row fits it."""
        fitting = self.fit(line.text)
        if fitting is None:
            return None
        row, values = fitting
        rank, above = self.head
        above = above if rank == line.rank else _NONE
        if row.kind == "head":
            self.head = line.rank, {**above, **values}
        if row.kind == "record":
            self.head = None, _NONE
            record, bad, nan_loss = to_record({**above, **values}, line, self.family.scope)
            last_step = "steps" in values and values.get("step") == values["steps"]
            of_run = {key: value for key, value in {**above, **values}.items() if key not in _OF_RECORD}
            return Hit(line, row, of_run, record=record, bad=bad, nan_loss=nan_loss, last_step=last_step)
        figures = [value for key, value in values.items() if key.startswith("summary.")]
        return Hit(line, row, values, bad=any(number(value) is None for value in figures))

    def near(self, line: Line) -> Hit | None:
        """Say whether a line that no row fits looks like a record; None where it does not."""
        return Hit(line, None, bad=True) if _regex(self.family.near).search(line.text) else None
