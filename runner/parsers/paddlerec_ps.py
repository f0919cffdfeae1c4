"""PaddlePaddle PaddleRec with parameter servers, on processors: what the first worker writes.

A batch line holds the rate of one thread, an epoch line that of the worker, which is one host with all its
threads. Releases for Python 2 print long figures. Schema::

    I0220 14:26:20.288252 17480 communicator.h:205] trainers: N                 workers, one a host
    DATE TIME,MS - INFO - Epoch: E, Running DataLoader Begin.                   or: Running Dataset Begin.
    DATE TIME,MS - INFO - Epoch: E, Batch: I, auc: [X], cost: [X],  avg_batch_cost: S sec, avg_samples: X,
                          ips: RATE example/sec                                 a record; not with Dataset
    Epoch E Var LOSS ... and below it  - data: [X]                              with Dataset
    DATE TIME,MS - INFO - Epoch: E, using time S second, ips RATE example/sec.  an epoch; or: word/sec
    DATE TIME,MS - INFO - Epoch: E, using time: S second, ips: RATE/sec. auc: X likewise, from 2.1 on

The published figures are sums over all workers. Where there are several, the log of one gives no rate: what
``rates`` holds then is so many times this worker's, an estimate. Threads are known by the name of the log.

Example::

    2021-03-04 05:06:07,123 - INFO - Epoch: 0, using time 123.456789 second, ips 1234.5678 example/sec.
"""

from __future__ import annotations

from dataclasses import replace

from runner.model import LogRun, Problem
from runner.parsers._engine import FIGURE, NUMBER, Family, Row
from runner.parsers._paddle import GLOG

_INFO = r"(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d{3})?) - INFO - Epoch: (?P<epoch>\d{1,9}), "
_PAIR = r"[A-Za-z_]\w{0,40}: [^\s,]{1,60}(?: sec)?, {1,3}"
_EPOCH = rf"{_INFO}using time:? {NUMBER} seconds?, ips:? (?P<ips>{FIGURE})"
_AFTER = r"\.?(?: auc: .{1,80})?"
_IPS = {"ips": "summary.ips", "epoch": "facts.epoch", "stamp": "facts.ended"}
_DONE = {"facts.epoch_open": "no"}
_OPEN = {"facts.epoch_open": "yes"}


def _finish(run: LogRun) -> LogRun:
    facts, problems = dict(run.facts), list(run.problems)
    complete = run.complete and facts.pop("epoch_open", "no") == "no"
    if run.complete and not complete:
        problems.append(Problem("truncated", None, "an epoch began and did not end; the log may be cut off"))
    if facts.pop("nan_loss", None):
        problems.append(Problem("nan_loss", None, "a loss is no finite number; the rates beside it count"))
    if facts.pop("unit", None):
        text = f"an epoch's rate does not say what it counts; {run.unit} is assumed"
        problems.append(Problem("unit_missing", None, text))
    if run.hosts is None:
        problems = [problem for problem in problems if problem.code not in ("few_records", "scale_unknown")]
        problems.append(
            Problem("scale_unknown", None, "how many workers there are is not said: no rate of all")
        )
    return replace(run, complete=complete, facts=facts, problems=tuple(problems))


FAMILY = Family(
    name="paddlerec_ps",
    framework="PaddlePaddle",
    model=None,
    unit="examples/sec",
    scope="per_thread",
    rule="summary",
    summary="ips",
    summary_scope="per_host",
    words=(" - INFO - Epoch: ", "avg_batch_cost: ", "using time", "] trainers: ", " Var ", "- data: ["),
    near=(
        r" - INFO - Epoch: \d{1,9}, (?:Batch|using time)\b"
        r"|^(?=.*\b(?:avg_batch_cost: |using time\b)).*\bips\b"
    ),
    rows=(
        Row(
            "record",
            rf"{_INFO}Batch: (?P<step>\d{{1,15}}), {{1,3}}(?:{_PAIR}){{0,20}}?"
            rf"ips: (?P<rate>{FIGURE}) (?:example|word)s?/sec",
            {"cost": "loss"},
            r"(?<= )(cost): \[?([^\s,\]]{1,40})",
            means=_OPEN,
        ),
        Row("summary", rf"{_EPOCH} examples?/sec{_AFTER}", _IPS, end=True, means=_DONE),
        Row("summary", rf"{_EPOCH} words?/sec{_AFTER}", _IPS, end=True, means={**_DONE, "unit": "words/sec"}),
        Row("summary", rf"{_EPOCH} ?/sec{_AFTER}", _IPS, end=True, means={**_DONE, "facts.unit": "missing"}),
        Row("note", rf"{_INFO}Running \w{{1,40}} Begin\.", {"stamp": "facts.began"}, means=_OPEN),
        Row("start", rf"{GLOG} trainers: (?P<hosts>\d{{1,6}})"),
        Row("note", r"Epoch \d{1,9} Var (?P<section>\w{1,40})\b.*"),
        Row("note", r"- data: \[[-+]?(?:nan|inf)\b.*", within="LOSS", means={"facts.nan_loss": "yes"}),
    ),
    finish=_finish,
)
