"""What is in a log: every module here without a leading underscore is a family of logs.

    families()                        name -> Family, found by looking into this package
    detect(lines)                     which families' grammars fit
    words(known)                      what the lines hold that parse needs; all others may be left out
    parse(lines, log, known)          the runs in a log
    parse_cell(lines, log, known)     the one run that a cell's logs must hold
    document(run)                     a run as ``parse --json`` shows it
    told_twice(runs)                  the runs of several logs, with what only shows among them
    in_words(transport)               a run's transport in one line

Detection is by whole grammar, never by a keyword: a log belongs to each family of which a record or a final
figure is in it. To add a family, add a module with a ``FAMILY`` and a pair under ``tests/parsers/<family>/``.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType

from runner.errors import UnknownLog, UsageError
from runner.model import Line, LogRun, Problem
from runner.names import hint, printable, shown
from runner.parsers._document import document
from runner.parsers._engine import Family, Found, Row, scan, words_of
from runner.parsers._environment import ENVIRONMENT
from runner.parsers._nccl import in_words
from runner.parsers._runs import Known, runs
from runner.parsers._twice import told_twice
from runner.parsers._values import name_says, same_precision

__all__ = [
    "A_WORD",
    "NOTHING_KNOWN",
    "NO_WORD",
    "Family",
    "Known",
    "Row",
    "detect",
    "document",
    "families",
    "in_words",
    "most_like",
    "name_says",
    "parse",
    "parse_cell",
    "same_precision",
    "told_twice",
    "words",
]

NOTHING_KNOWN = Known()
NO_WORD = "no line holds a word of any of them"
A_WORD = "which holds a word of "
_NEAR = ("not a whole line of {}", "a line of {} without a measurement", A_WORD + "{}")
_LOOKED_AT = 1000  # characters of a line
_SIGNS = (  # of a record, whoever wrote it
    r"(?i)\d ?(?:[a-z]{1,12}/s(?:ec)?\b|m?s/[a-z]{2,9}\b)",
    r"(?i)\b(?:ips|fps|throughput|speed|time)\b.{0,9}\d",
    r"(?i)\b(?:[a-z_]{0,20}loss|acc(?:uracy)?)\b\W{0,3}\d",
    r"(?i)\b(?:step|iter(?:ation)?|epoch|batch)\b\W{0,3}\d|\d/\d",
)


@cache
def families() -> Mapping[str, Family]:
    """Find the families, by name."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__) if not info.name.startswith("_"))
    found = [importlib.import_module(f"{__name__}.{name}").FAMILY for name in names]
    return MappingProxyType({family.name: family for family in found})


def detect(lines: Iterable[Line]) -> tuple[str, ...]:
    """Name the families of which at least one whole record or final figure is in the log."""
    return tuple(found.family.name for found in scan(lines, tuple(families().values())) if found.proved)


def words(known: Known = NOTHING_KNOWN) -> tuple[str, ...]:
    """Give the words of which every line holds one that says something to ``parse``, whatever the log."""
    return words_of((*_asked_for(known), ENVIRONMENT))


def parse(lines: Iterable[Line], log: str, known: Known = NOTHING_KNOWN) -> list[LogRun]:
    """Find the runs in a log, in order. ``log`` is its name, which may say cards, batch size and precision.

    Raises UnknownLog where no grammar fits, UsageError where ``known`` names no family or no rule.
    """
    *found, around = scan(lines, (*_asked_for(known), ENVIRONMENT))
    made = [(hits, run) for hits in found for run in runs(hits, log, known, around.hits)]
    if not made:
        raise UnknownLog(_nothing(log, found))
    return [run for _, run in sorted(made, key=lambda pair: _first_line(*pair))]


def parse_cell(lines: Iterable[Line], log: str, known: Known = NOTHING_KNOWN) -> LogRun | Problem:
    """Find the run in the logs of one cell: the last, which says so where there are several.

    A Problem with code ``not_recognized`` where there is none. Give in ``known`` the family and the rule
    only, so that what the log itself says of cards and batch size can be held against the plan.
    """
    try:
        return parse(lines, log, known)[-1]
    except UnknownLog as error:
        return Problem("not_recognized", None, str(error))


def _asked_for(known: Known) -> Sequence[Family]:
    if known.family is None:
        return tuple(families().values())
    if known.family not in families():
        raise UsageError(f"family {shown(known.family)}: unknown; {hint(known.family, families())}")
    return (families()[known.family],)


def _first_line(found: Found, run: LogRun) -> int:
    return run.records[0].line if run.records else found.hits[-1].line.number


def _nothing(log: str, found: Sequence[Found]) -> str:
    tried = ", ".join(one.family.name for one in found)
    near = [(*one.nearest, one.family.name) for one in found if one.nearest is not None]
    nearest = NO_WORD
    if near:
        how, line, family = min(near, key=lambda one: one[0])
        nearest = f"nearest is line {line.number}, {_NEAR[how].format(family)}: {shown(line.text)}"
    return f"{printable(log)}: no run found; tried {tried}; {nearest}"


def most_like(lines: Iterable[Line]) -> str | None:
    """Say which line is most like a record of some training, where no family knows a word of the log."""
    best, most = None, 0
    for line in lines:
        text = line.text[:_LOOKED_AT]
        signs = sum(re.search(sign, text, re.ASCII) is not None for sign in _SIGNS)
        if signs > most:
            best, most = line, signs
    return None if best is None else f"most like a record is line {best.number}: {shown(best.text)}"
