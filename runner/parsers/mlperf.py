"""Logs of MLPerf Training, any benchmark: lines of the mlperf_logging package and of those before it.

Whatever the submitter's launcher wrote stands before a line. The objects have keys in a fixed order; they are
matched, not evaluated. Schema of a line, since v0.7, in v0.6 and in v0.5::

    :::MLLOG {"namespace": "", "time_ms": N, "event_type": E, "key": K, "value": V, "metadata": {...}}
    :::MLL SECONDS K: {"value": V, "metadata": {...}}
    :::MLPv0.5.0 BENCHMARK SECONDS (FILE:LINE) K[: V]

    submission_benchmark            the model; begins a run; in v0.5 run_start does
    global_batch_size               of all cards in a step
    run_start, run_stop             time to train is between them; status success: the target was reached
    eval_accuracy                   the benchmark's quality; a fraction for most, of maskrcnn the boxes'
    tracked_stats                   value.throughput: samples/sec of all cards, of some submitters; a record

NVIDIA's scripts print the system as well (``:::SYSJSON {...}``): hosts and their cards. The figure of such a
run is its time to train; rule ``summary`` is the last throughput, where one is stated. What is no share of
right answers (error rates, losses, distances) is the fact ``quality`` and no accuracy.

Example::

    :::MLLOG {"namespace": "", "time_ms": 1900000000000, "event_type": "INTERVAL_START", "key": "run_start", \
"value": null, "metadata": {"file": "train.py", "lineno": 9}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from runner.model import LogRun, Problem
from runner.parsers._engine import FIGURE, NUMBER, Family, Row
from runner.parsers._launch import counted
from runner.parsers._values import count, number

# benchmarks whose quality must reach a fraction from below, by the rules that the package checks logs with
_FRACTIONS = (
    *(
        "resnet",
        "ssd",
        "retinanet",
        "maskrcnn",
        "bert",
        "dlrm",
        "dlrm_dcnv2",
        "dlrmv4",
        "unet3d",
        "gnn",
        "rgat",
    ),
    *("ncf", "minigo", "gnmt", "transformer", "deepcam", "openfold", "qwen35_397b_grpo"),
)
_BEFORE = r"(?:.{0,80}[\s:\]])?"
_META = r'"metadata": ?\{'
_MS = r"(?P<ms>\d{1,16}(?:\.\d{0,9})?)"
_SECONDS = r"(?P<s>\d{1,13}(?:\.\d{0,9})?)"
_TIME = r"(?:\d{1,13}(?:\.\d{0,9})?)"


def _line(key: str, value: str, time: str = r"\d{1,16}(?:\.\d{0,9})?", more: str = "") -> str:
    """Give the grammar of a whole line: key and value, what ``time_ms`` is, what the metadata must hold."""
    event = rf'"event_type": ?"\w{{1,40}}", ?"key": ?"{key}"'
    head = rf'{_BEFORE}:::MLLOG \{{"namespace": ?"[^"]{{0,40}}", ?"time_ms": ?{time}, ?{event}'
    return rf'{head}, ?"value": ?{value}, ?{_META}{more}.{{0,4000}}\}}\}}'


def _line_06(key: str, value: str, time: str = _TIME, more: str = "") -> str:
    """Give the grammar of a line of v0.6."""
    return rf'{_BEFORE}:::MLL {time} {key}: \{{"value": ?{value}, ?{_META}{more}.{{0,4000}}\}}\}}'


def _line_05(key: str, value: str = "", time: str = _TIME, benchmark: str = r"\w{1,40}") -> str:
    """Give the grammar of a line of v0.5."""
    return rf"{_BEFORE}:::MLPv\d\.\d\.\d {benchmark} {time} \([^()]{{1,255}}:\d{{1,9}}\) {key}{value}"


def _finish(run: LogRun) -> LogRun:
    facts, problems = dict(run.facts), run.problems
    took = _between(facts, "began", "ended", 1000) or _between(facts, "began_s", "ended_s", 1)
    status = facts.get("status")
    if status == "aborted":
        text = "run_stop says aborted: the training ended without reaching the target"
        problems = (*problems, Problem("target_missed", None, text))
    of_a_host = count(facts.pop("cards_of_a_host", None))
    made = replace(
        run,
        time_to_train_s=took,
        time_to_target_s=took if status == "success" else None,
        accuracy=run.accuracy if run.model in _FRACTIONS else None,
        facts=facts,
        problems=problems,
    )
    return counted(made, of_a_host * run.hosts if of_a_host and run.hosts else None)


def _between(facts: dict[str, str], start: str, stop: str, parts: int) -> float | None:
    """Give the seconds between two stamps among the facts, which are counted in ``parts`` of a second."""
    began, ended = number(facts.pop(start, None)), number(facts.pop(stop, None))
    return None if began is None or ended is None else round((ended - began) / parts, 3)


_BEGAN, _BEGAN_S = {"ms": "facts.began"}, {"s": "facts.began_s"}
_FIELDS = {"throughput": "summary.throughput"}
_STATUS = r'(?=.{0,4000}"status": ?"(?P<status>\w{1,40})")'
_END = {"ms": "facts.ended", "s": "facts.ended_s", "status": "facts.status"}
_SUCCESS = r": \{{[^{{}}]{{0,80}}\"success\": ?{}[^{{}}]{{0,80}}\}}"
_REACHED, _MISSED = {"facts.status": "success"}, {"facts.status": "aborted"}
_RECORD_TIME = r"(?P<time>\d{1,13})\d{3}(?:\.\d{0,9})?"
_RATE = rf"(?P<rate>(?P<throughput>{FIGURE}))"
_MODEL = r'"(?P<model>[\w.-]{1,60})"'
_BATCH = r'"?(?P<global_batch>\d{1,9})(?:\.0)?"?'
_SHARE = r"(?:0?\.\d{1,40}|0?\.?\d{1,9}e-\d{1,2}|[01](?:\.0{0,40})?)"
_ACCURACY = rf'"?(?P<accuracy>(?P<quality>{_SHARE}))"?'
_BOXES = rf'\{{[^{{}}]{{0,200}}?"BBOX": ?"?(?P<accuracy>(?P<quality>{_SHARE}))"?[^{{}}]{{0,200}}\}}'
_QUALITY = rf'"?(?P<quality>{NUMBER})"?'
_QUALITY_05 = rf': (?:\{{[^{{}}]{{0,200}}?"(?:value|accuracy)": ?)?{_ACCURACY}(?:[,}}][^{{}}]{{0,200}})?'
_ANY = r".{0,80}?"
_SYSTEM = {
    "number_of_nodes": "hosts",
    "accelerators_per_node": "facts.cards_of_a_host",
    "accelerator_model_name": "gpu",
}
_SYSTEM_PAIRS = r'"(number_of_nodes|accelerators_per_node|accelerator_model_name)": ?("[^"]{1,80}"|\d{1,6})'
_KEPT: Mapping[str, str] = {
    key: f"facts.{key}" for key in ("quality", "seed", "train_samples", "trained_samples")
}


def _both(kind: str, key: str, value: str, fields: Mapping[str, str]) -> tuple[Row, Row]:
    """Give the rows of a key that v0.6 writes with the same words as its successors."""
    return Row(kind, _line(key, value), fields), Row(kind, _line_06(key, value), fields)


FAMILY = Family(
    name="mlperf",
    framework=None,
    model=None,
    unit="samples/sec",
    scope="global",
    rule="summary",
    summary="throughput",
    words=(":::MLLOG ", ":::MLL ", ":::MLPv", ":::SYSJSON "),
    near=r':::MLLOG \{.{0,400}"(?:run_stop"|throughput": ?(?!\{)|tracked_stats".{0,4000}[^}\s]\s{0,9}$)'
    r"|:::MLLOG(?: \{?[^}]{0,140})?$|:::MLL \S{1,40} run_stop\b|:::MLPv.{1,300}\) run_stop\b",
    rows=(
        Row(
            "record",
            _line(
                "tracked_stats", rf'{{[^{{}}]{{0,400}}?"throughput": ?{_RATE}[^{{}}]{{0,400}}}}', _RECORD_TIME
            ),
            {**_FIELDS, "step": "step", "samples_count": "step"},
            r'"(step|samples_count)": ?(\d{1,15})(?=[,}])',
        ),
        *_both("start", "submission_benchmark", _MODEL, {}),
        *_both("note", "global_batch_size", _BATCH, {}),
        Row("note", _line("run_start", _ANY, _MS), _BEGAN),
        Row("note", _line_06("run_start", _ANY, _SECONDS), _BEGAN_S),
        Row("start", _line_05("run_start", "", _SECONDS, r"(?P<model>\w{1,40})"), _BEGAN_S),
        Row("summary", _line("run_stop", _ANY, _MS, _STATUS), _END, end=True),
        Row("summary", _line_06("run_stop", _ANY, _SECONDS, _STATUS), _END, end=True),
        Row("summary", _line_05("run_stop", _SUCCESS.format("true"), _SECONDS), _END, None, True, _REACHED),
        Row("summary", _line_05("run_stop", _SUCCESS.format("false"), _SECONDS), _END, None, True, _MISSED),
        Row("summary", _line_05("run_stop", "", _SECONDS), _END, end=True),
        *_both("note", "eval_accuracy", _ACCURACY, _KEPT),
        *_both("note", "eval_accuracy", _BOXES, _KEPT),
        *_both("note", "eval_accuracy", _QUALITY, _KEPT),
        Row("note", _line_05("eval_(?:iteration_)?accuracy", _QUALITY_05), _KEPT),
        *_both("note", "seed", r"(?P<seed>\d{1,20})", _KEPT),
        *_both("note", "train_samples", r"(?P<train_samples>\d{1,15})", _KEPT),
        *_both("note", "trained_samples", r"(?P<trained_samples>\d{1,15})", _KEPT),
        Row("note", rf"{_BEFORE}:::SYSJSON \{{\".{{0,8000}}\}}", _SYSTEM, _SYSTEM_PAIRS),
    ),
    finish=_finish,
)
