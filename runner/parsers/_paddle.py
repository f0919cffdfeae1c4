"""Parts that the logs of several PaddlePaddle programs share."""

from __future__ import annotations

from dataclasses import replace

from runner.model import LogRun
from runner.parsers._values import count

STAMP = r"(?P<stamp>\d{4}[-/]\d\d[-/]\d\d \d\d:\d\d:\d\d)(?:,\d{3})?"
# The heads of PaddleNLP's loggers, newer and older; what a colour in the newer one leaves; or none
HEAD = rf"(?:\[?{STAMP}\]?(?: \[ {{0,9}}INFO\] - | ?- ?INFO ?[:-] )|- )?"
_PAIR = r"[A-Za-z_][\w ]{0,40}: [^\s,]{1,40}(?: [A-Za-z][\w/]{0,20})?"
BEFORE, AFTER = rf"(?:{_PAIR}, ){{0,20}}?", rf"(?:, {_PAIR}){{0,20}}"


def finished(run: LogRun, first_step: int) -> LogRun:
    """Hold a run complete that has come to its last record: no line of its own says that it has ended.

    Facts ``max_steps`` and ``every`` are the steps of the training, counted from ``first_step``, and those
    from record to record.
    """
    last = run.records[-1].step if run.records else None
    total, every = count(run.facts.get("max_steps")), count(run.facts.get("every"))
    if run.complete or last is None or not total or not every or last + every < total + first_step:
        return run
    left = tuple(problem for problem in run.problems if problem.code != "truncated")
    return replace(run, complete=True, problems=left)
