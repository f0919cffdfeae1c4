"""Lines of the AI-Rank collection that stand in the logs of other families; they belong to the run there.

Form (AI-Rank, docs/software/train.md; some frameworks' loggers put their own head before it)::

    - AI-Rank-log 1620718940.580 eval_accuracy:79.1321, total_epoch_cnt:48.40
    - AI-Rank-log 1620718940.580 target_quality_time:3279.83sec
    - AI-Rank-log 1620718940.580 total_use_time:12.03sec
    - AI-Rank-log 1620718940.580 avg_ips:1190images/sec
    - AI-Rank-log 1620718940.580 test_finish

``avg_ips`` is for one card in some logs and for all in others, so it is a fact and no figure of the run.
"""

from __future__ import annotations

from dataclasses import replace

from runner.model import LogRun, Problem
from runner.parsers._engine import FIGURE, NUMBER, Row
from runner.parsers._values import number

AIRANK_HEAD = rf"(?:.{{0,80}}[\s\]-])?AI-Rank-log (?P<airank>{NUMBER}) "
_FIELDS = {"airank": "facts.airank", "ips": "facts.avg_ips"}
_DAY_S = 86400.0  # records say no time zone, which may shift them by up to 14 hours

AIRANK_WORDS = ("AI-Rank-log ",)
AIRANK_ROWS = (
    Row("note", rf"{AIRANK_HEAD}eval_accuracy: ?(?P<accuracy>{FIGURE} ?%?)(?:, ?.{{0,200}})?", _FIELDS),
    Row("note", rf"{AIRANK_HEAD}target_quality_time: ?(?P<time_to_target_s>{NUMBER} ?s(?:ec)?)", _FIELDS),
    Row("note", rf"{AIRANK_HEAD}total_use_time: ?(?P<time_to_train_s>{NUMBER} ?s(?:ec)?)", _FIELDS),
    Row("note", rf"{AIRANK_HEAD}avg_ips: ?(?P<ips>{NUMBER}) ?[A-Za-z]{{0,20}}/s(?:ec)?", _FIELDS),
    Row("note", rf"{AIRANK_HEAD}test_finish", _FIELDS, end=True),
)


def held_against_records(run: LogRun) -> LogRun:
    """Add a problem where the last AI-Rank line is stamped days before or after the records it belongs to.

    Public logs hold such lines, with the stamp of the format's own documentation: typed in, not written by
    the run. Their times and accuracies stay, with that problem beside them.
    """
    stamp = number(run.facts.get("airank"))
    times = [record.time for record in run.records if record.time is not None]
    if stamp is None or not times or min(times) - _DAY_S <= stamp <= max(times) + _DAY_S:
        return run
    text = f"the AI-Rank lines are stamped {stamp:.3f}, the records {min(times):.3f} to {max(times):.3f}"
    return replace(run, problems=(*run.problems, Problem("not_machine_output", None, text)))
