"""Logs of MLPerf Training since v0.7: lines that hold ``:::MLLOG`` and one JSON object, any benchmark.

Whatever the submitter's launcher wrote stands before it. The objects are those of the mlperf_logging package,
whose keys have a fixed order; they are matched, not evaluated. Schema::

    :::MLLOG {"namespace": "", "time_ms": N, "event_type": E, "key": K, "value": V, "metadata": {...}}

    submission_benchmark            the model; begins a run
    global_batch_size               of all cards in a step
    run_start, run_stop             time to train is between them; status success: the target was reached
    eval_accuracy                   the benchmark's quality; a fraction for most
    tracked_stats                   value.throughput: samples/sec of all cards, of some submitters; a record

The figure of such a run is its time to train; rule ``summary`` is the last throughput, where one is stated.
The word error rate of ``rnnt`` and figures above 1 (perplexities, losses) are no accuracy.

Example::

    :::MLLOG {"namespace": "", "time_ms": 1900000000000, "event_type": "INTERVAL_START", "key": "run_start", \
"value": null, "metadata": {"file": "train.py", "lineno": 9}}
"""

from __future__ import annotations

from dataclasses import replace

from runner.model import LogRun, Problem
from runner.parsers._engine import FIGURE, NUMBER, Family, Row
from runner.parsers._nccl import NCCL_ROWS, NCCL_WORDS
from runner.parsers._values import number

_LOGGED = r"(?:.{0,80}[\s:\]])?:::MLLOG"
_EVENT = r'"event_type": ?"\w{1,40}", ?"key": ?'


def _line(key: str, value: str, time: str = r"\d{1,16}(?:\.\d{0,9})?", more: str = "") -> str:
    """Give the grammar of a whole line: key and value, what ``time_ms`` is, what the metadata must hold."""
    head = rf'{_LOGGED} {{"namespace": ?"[^"]{{0,40}}", ?"time_ms": ?{time}, ?{_EVENT}"{key}"'
    return rf'{head}, ?"value": ?{value}, ?"metadata": ?{{{more}.{{0,4000}}}}'


def _finish(run: LogRun) -> LogRun:
    facts, problems = dict(run.facts), run.problems
    began, ended = number(facts.pop("began", None)), number(facts.pop("ended", None))
    took = None if began is None or ended is None else round((ended - began) / 1000, 3)
    reached = facts.get("status") == "success"
    if facts.get("status") == "aborted":
        text = "run_stop says aborted: the training ended without reaching the target"
        problems = (*problems, Problem("target_missed", None, text))
    return replace(
        run,
        time_to_train_s=took,
        time_to_target_s=took if reached else None,
        accuracy=None if run.model == "rnnt" else run.accuracy,
        facts=facts,
        problems=problems,
    )


_FIELDS = {"throughput": "summary.throughput", "ms": "facts.began"}
_STATUS = r'(?=.{0,4000}"status": ?"(?P<status>\w{1,40})")'
_END = {"ms": "facts.ended", "status": "facts.status"}
_MS = r"(?P<ms>\d{1,16}(?:\.\d{0,9})?)"
_SECONDS = r"(?P<time>\d{1,13})\d{3}(?:\.\d{0,9})?"
_RATE = rf"(?P<rate>(?P<throughput>{FIGURE}))"

FAMILY = Family(
    name="mlperf",
    framework=None,
    model=None,
    unit="samples/sec",
    scope="global",
    rule="summary",
    summary="throughput",
    words=(":::MLLOG ", *NCCL_WORDS),
    near=r':::MLLOG \{.{0,400}"(?:run_stop"|throughput": ?(?!\{))',
    rows=(
        Row(
            "record",
            _line("tracked_stats", rf'{{[^{{}}]{{0,400}}?"throughput": ?{_RATE}[^{{}}]{{0,400}}}}', _SECONDS),
            {**_FIELDS, "step": "step", "samples_count": "step"},
            r'"(step|samples_count)": ?(\d{1,15})(?=[,}])',
        ),
        Row("start", _line("submission_benchmark", r'"(?P<model>[\w.-]{1,60})"')),
        Row("note", _line("global_batch_size", r'"?(?P<global_batch>\d{1,9})(?:\.0)?"?')),
        Row("note", _line("run_start", r".{0,80}?", _MS), _FIELDS),
        Row("summary", _line("run_stop", r".{0,80}?", _MS, _STATUS), _END, end=True),
        Row("note", _line("eval_accuracy", r'"?(?P<accuracy>0?\.\d{1,40}|[01](?:\.0{0,40})?)"?')),
        Row("note", _line("eval_accuracy", rf'"?(?P<quality>{NUMBER})"?'), {"quality": "facts.quality"}),
        Row("note", _line("seed", r"(?P<seed>\d{1,20})"), {"seed": "facts.seed"}),
        *NCCL_ROWS,
    ),
    finish=_finish,
)
