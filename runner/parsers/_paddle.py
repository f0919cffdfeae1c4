"""Parts that the logs of several PaddlePaddle programs share.

What ``paddle.distributed.launch`` and its processes say of themselves, up to release 2.2 and since then::

    |                     PADDLE_TRAINERS_NUM                        8                      |
    I0205 04:33:26.832818 41833 nccl_context.cc:82] init nccl context nranks: 8 local rank: 0 ... ring id: 0
    LAUNCH INFO 2031-05-06 07:08:09,882 nnodes: 1
    LAUNCH INFO 2031-05-06 07:08:09,885 Run Pod: gtyufh, replicas 8, status ready

``replicas`` are the cards of one host. Which cards a command names (``--gpus``) says nothing of other hosts.
"""

from __future__ import annotations

from dataclasses import replace

from runner.model import LogRun, Problem
from runner.parsers._engine import Row
from runner.parsers._not_used import not_used
from runner.parsers._problems import few_records, without
from runner.parsers._stalls import stalls
from runner.parsers._values import count
from runner.rates import all_cards, overview, rate, scale_of

STAMP = r"(?P<stamp>\d{4}[-/]\d\d[-/]\d\d \d\d:\d\d:\d\d)(?:,\d{3})?"
# The heads of PaddleNLP's loggers, newer and older; what a colour in the newer one leaves; or none
HEAD = rf"(?:\[?{STAMP}\]?(?: \[ {{0,9}}INFO\] (?:\S{{1,99}} )?- | ?- ?INFO ?[:-] )|- )?"
_PAIR = r"[A-Za-z_][\w ]{0,40}: [^\s,]{1,40}(?: [A-Za-z][\w/]{0,20})?"
BEFORE, AFTER = rf"(?:{_PAIR}, ){{0,20}}?", rf"(?:, {_PAIR}){{0,20}}"
GLOG = r"[IWE]\d{4} \d\d:\d\d:\d\d\.\d{1,9} {1,9}\d{1,9} \S{1,80}\]"  # the head of what glog writes
_LAUNCH = r"LAUNCH INFO \d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} "

LAUNCH_WORDS = ("PADDLE_TRAINERS_NUM", " init nccl context ", "LAUNCH INFO ")
_ROWS = (
    Row("note", r"\|? {1,99}PADDLE_TRAINERS_NUM {1,99}(?P<cards>\d{1,6}) {1,99}\|?"),
    Row(
        "note",
        rf"{GLOG} init nccl context nranks: (?P<cards>\d{{1,6}}) local rank: \d{{1,6}} "
        r"gpu id: \d{1,4} ring id: 0",
    ),
    Row("note", rf"{_LAUNCH}ips: \S{{1,300}},.*", means={"hosts": "those listed"}),  # nnodes is 1 beside it
    Row("note", rf"{_LAUNCH}nnodes: (?P<hosts>\d{{1,6}})"),
    Row("note", rf"{_LAUNCH}Run Pod: \S{{1,40}}, replicas (?P<cards_per_host>\d{{1,6}}), .*"),
)
LAUNCH_ROWS = tuple(row._replace(behind=False) for row in _ROWS)


def finished(run: LogRun, first_step: int) -> LogRun:
    """Hold a run complete that has come to its last record: no line of its own says that it has ended.

    Facts ``max_steps`` and ``every`` are the steps of the training, counted from ``first_step``, and those
    from record to record.
    """
    last = run.records[-1].step if run.records else None
    total, every = count(run.facts.get("max_steps")), count(run.facts.get("every"))
    if run.complete or last is None or not total or not every or last + every < total + first_step:
        return run
    return replace(run, complete=True, problems=without(run, "truncated"))


def by_step_times(run: LogRun) -> LogRun:
    """Give a run whose records state no rate the one that their step times and the batch size make.

    The first releases print the seconds of a step alone, or steps per second.
    """
    if not run.records or any(one.rate is not None or one.step_s is None for one in run.records):
        return run
    timed = replace(run, scope="seconds_per_step", problems=without(run, "few_records", "scale_unknown"))
    values = all_cards(timed.records, timed.scope, scale_of(timed))
    unused = {reason: lines for reason, lines in run.lines_not_used.items() if reason != "no_rate"}
    unused.update(not_used(run.rule, run.records, timed.scope, values))
    timed = replace(timed, rates=overview(values, {}), rate=rate(timed, run.rule), lines_not_used=unused)
    text = "the records hold step times alone, which need the batch size and cards; the log lacks one"
    missing = few_records(run.rule, values, {}) if values else [Problem("scale_unknown", None, text)]
    return replace(timed, problems=(*timed.problems, *missing, *stalls(run.records, timed.scope, ())))
