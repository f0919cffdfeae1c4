"""Logs of the workloads that runkit brings itself: one ``key=value`` line per event, written by rank 0.

    runkit start     workload started cards hosts batch_size global_batch precision unit seed model framework
                     framework_version mpi ...
    runkit step      step epoch time loss step_time rate ...
    runkit eval      step epoch time accuracy
    runkit summary   steps epochs time images rate loss accuracy ranks parameters_sha256 parameters_agree
                     [time_to_target target] [skipped_steps loss_scale]

``time`` is seconds since the training began, ``rate`` is for all cards, ``accuracy`` a fraction. ``facts``
holds what only these logs say; ``parameters_agree=false`` (the ranks do not hold the same network) is a
problem.

Example::

    runkit step step=120 epoch=4 time=3.2140 loss=0.512340 step_time=0.010230 rate=25024.1
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from runner.model import LogRun, Problem
from runner.parsers._engine import FIGURE, NUMBER, Family, Row
from runner.parsers._values import number

_PAIR = r'(?:[a-z]\w{0,99}=(?:"[^"]*"|[^\s"]+))'
_PAIRS = r'(?<= )([a-z]\w{0,99})=("[^"]*"|[^\s"]+)'
_MORE = rf"(?: {_PAIR}){{0,99}}"
_WHOLE = r"\d{1,15}"


def _kept(words: str) -> dict[str, str]:
    return {word: word for word in words.split()}


def _facts(words: str) -> dict[str, str]:
    return {word: f"facts.{word}" for word in words.split()}


_START = {
    **_kept("cards hosts batch_size global_batch precision unit model framework framework_version"),
    **_facts("workload started seed mpi train_images test_images parameters"),
}
_SUMMARY = {
    **_kept("accuracy"),
    **_facts("steps epochs images rate_steps ranks parameters_sha256 parameters_agree"),
    **_facts("target skipped_steps loss_scale"),
    "rate": "summary.rate",
    "time": "time_to_train_s",
    "time_to_target": "time_to_target_s",
}
_WORDS = ("workload", "started", "mpi", "parameters_sha256")  # facts that are text; the others are numbers


def _finish(run: LogRun) -> LogRun:
    facts = {key: _fact(key, value) for key, value in run.facts.items()}
    problems = run.problems
    if facts.get("parameters_agree") is False:
        text = "the ranks ended with different parameters: they did not train one network"
        problems = (*problems, Problem("parameters_differ", None, text))
    return replace(run, facts=facts, problems=problems)


def _fact(key: str, value: str) -> Any:
    if key in _WORDS:
        return value
    if value in ("true", "false"):
        return value == "true"
    figure = number(value)
    if figure is None:
        return value
    return int(figure) if figure == int(figure) else figure


FAMILY = Family(
    name="runkit",
    framework="NumPy",
    model=None,
    unit="images/sec",
    scope="global",
    rule="summary",
    summary="rate",
    words=("runkit ",),
    near=r"^\s*runkit (?:(?:step|summary)\b|s[a-z]{0,6}$)",
    rows=(
        Row("start", rf"runkit start{_MORE}", _START, _PAIRS),
        Row(
            "record",
            rf"runkit step step=(?P<step>{_WHOLE}) epoch=(?P<epoch>{_WHOLE}) time=(?P<time>{FIGURE})"
            rf" loss=(?P<loss>{FIGURE}) step_time=(?P<step_s>{FIGURE}) rate=(?P<rate>{FIGURE}){_MORE}",
            {"done": "done"},
            _PAIRS,
        ),
        Row(
            "note",
            rf"runkit eval step={_WHOLE} epoch={_WHOLE} time={NUMBER} accuracy=(?P<accuracy>{NUMBER}){_MORE}",
        ),
        Row(
            "summary",
            rf"runkit summary steps={_WHOLE} epochs={_WHOLE} time={NUMBER} images={_WHOLE}"
            rf" rate={FIGURE}{_MORE}",
            _SUMMARY,
            _PAIRS,
            end=True,
        ),
    ),
    finish=_finish,
)
