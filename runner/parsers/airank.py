"""Logs that hold AI-Rank lines and nothing of another family: see ``_airank`` for their form.

A training that another family knows keeps its AI-Rank lines. ``avg_ips`` is taken as the format's document
has it, for all cards and the whole run: (all epochs - those of the warm-up) x samples an epoch / seconds
after the warm-up. Some public logs state one card's, or the last interval's, and nothing in the line tells
which: for more than one card that is a problem of the run. Cards, batch size and precision are in the log's
name or nowhere.

Example::

    - AI-Rank-log 1558631918.455 avg_ips:1190images/sec
"""

from __future__ import annotations

from dataclasses import replace

from runner.model import LogRun, Problem
from runner.parsers._airank import AIRANK_HEAD, AIRANK_ROWS, AIRANK_WORDS
from runner.parsers._engine import NUMBER, Family, Row

_ASSUMED = (
    "avg_ips does not say of how many cards it is, nor over what time; all cards, whole run are assumed"
)
_IPS = {"airank": "facts.airank", "ips": "summary.avg_ips"}
_AVERAGE = rf"{AIRANK_HEAD}avg_ips: ?(?P<ips>{NUMBER}) ?"


def _finish(run: LogRun) -> LogRun:
    facts, problems = dict(run.facts), list(run.problems)
    if facts.pop("unit", None) is not None:
        text = "avg_ips does not say what it counts; samples/sec is assumed"
        problems.append(Problem("unit_missing", None, text))
    if run.rates["summary"] and run.cards != 1:
        problems.append(Problem("scope_assumed", None, _ASSUMED))
    unit = run.unit.lower().removesuffix("ec").removesuffix("/s") + "/sec"
    return replace(run, unit=unit, facts=facts, problems=tuple(problems))


FAMILY = Family(
    name="airank",
    framework=None,
    model=None,
    unit="samples/sec",
    scope="global",
    rule="summary",
    summary="avg_ips",
    words=AIRANK_WORDS,
    near=r"\bAI-Rank-log \S{1,40} (?:eval_accuracy|target_quality_time|total_use_time|avg_ips)\b",
    rows=(
        Row("start", rf"{AIRANK_HEAD}test_begin", {"airank": "facts.began"}),
        Row("summary", rf"{_AVERAGE}(?P<unit>[A-Za-z]{{1,20}}/s(?:ec)?)", _IPS),
        Row("summary", rf"{_AVERAGE}/s(?:ec)?", _IPS, means={"facts.unit": "missing"}),
        *(row._replace(kind="note" if row.end else "summary") for row in AIRANK_ROWS),
    ),
    finish=_finish,
    last_resort=True,
)
