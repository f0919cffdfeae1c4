"""NVIDIA DeepLearningExamples, PyTorch, ConvNets (ResNet50 v1.5): DLLogger lines on standard output.

Written by ``main.py`` on the first rank, for any number of cards; every rate is for all cards. Schema::

    DLL DATE TIME - PARAMETER key : value ...   batch_size world_size amp optimizer_batch_size
    DLL DATE TIME - Epoch: E Iteration: I  train.loss : X [unit] ... train.total_ips : RATE [unit] ...
    DLL DATE TIME - Epoch: E  ... val.top1 : X % ...                    an evaluation, in percent
    DLL DATE TIME - Summary: ... train.total_ips : RATE [unit] ...      means over the epochs
    DLL DATE TIME - Summary: ... train.compute_ips : RATE [unit] ...    older releases: a line of its own

``raport.json`` beside it has the same as JSON lines, see ``_dll``: steps ``[E, I]``, ``[E]`` and ``[]``.
Where the settings are cut off, ``multiproc.py`` still says some: it prints the argv of the processes that it
starts. Units are ``img/s``, ``images/s`` or none, and ``None`` stands where a figure or a unit is missing.
The losses of a Summary are the first epoch's: they are not read. ``train.compute_ips`` leaves the loading of
data out. ``Iteration: I Validation Iteration: J`` is an evaluation on its way: neither a record nor an
accuracy. ``time_to_train_s`` is from the first record to the Summary, as the published figures for these logs
are.

Example::

    DLL 2021-03-04 05:06:07.1234 - Epoch: 0 Iteration: 10  train.loss : 7.123  train.total_ips : 1234.56 img/s
"""

from __future__ import annotations

from dataclasses import replace

from runner.model import LogRun
from runner.parsers._airank import AIRANK_ROWS, AIRANK_WORDS, held_against_records
from runner.parsers._dll import (
    AFTER,
    BEFORE,
    DLL,
    JSON_PAIRS,
    JSON_WORD,
    PAIR,
    PAIRS,
    TORN,
    TORN_HEAD,
    json_line,
    json_near,
    json_says,
)
from runner.parsers._engine import FIGURE, Family, Row
from runner.parsers._launch import TORCH_WORDS, torch_rows, with_launcher
from runner.parsers._values import seconds

_SUMMARY = {"train.total_ips": "summary.total_ips", "train.compute_ips": "summary.compute_ips"}
_PARAMETERS = {
    "batch_size": "batch_size",
    "optimizer_batch_size": "global_batch",  # of a step of the optimizer; -1 where it is cards x batch
    "world_size": "cards",
    "amp": "amp",
    "arch": "facts.arch",
}
_STEP = r"\[(?P<epoch>\d{1,9}), ?(?P<step>\d{1,15})\]"
_PERCENT = rf"(?P<accuracy>{FIGURE})"
_TOP1 = rf'(?=.{{0,9000}}?"val\.top1": ?{_PERCENT}[,}}])'
_JSON_PRECISION = {
    json_says("amp", "true"): {"precision": "amp"},
    json_says("fp16", "true"): {"precision": "fp16"},
    json_says("amp", "false"): {"precision": "fp32"},
    "": {},
}
_ARGV = r"\['[^']{0,200}python[\d.]{0,9}', '-u', '[^']{0,200}main\.py', "
_OPTIONS = {"-b": "batch_size", "--batch-size": "batch_size"}
_SAID = r"'(-b|--batch-size)', '(\d{1,7})'"
_START = rf"{DLL}PARAMETER (?=.*? batch_size : )"  # the model's own parameters follow on another line


def _finish(run: LogRun) -> LogRun:
    facts = dict(run.facts)
    ended = seconds(facts.pop("ended", None))
    began = run.records[0].time if run.records else None
    took = run.time_to_train_s  # where an AI-Rank line says it
    if took is None and ended is not None and began is not None:
        took = round(ended - began, 6)
    model = facts.get("arch", "resnet50")  # the program trains others as well
    made = replace(run, model=run.model if model == "resnet50" else model, facts=facts, time_to_train_s=took)
    return held_against_records(with_launcher(made))


FAMILY = Family(
    name="dll_pytorch_resnet50",
    framework="PyTorch",
    model="ResNet50",
    unit="images/sec",
    scope="global",
    rule="summary",
    summary="total_ips",
    words=(
        *("DLL ", JSON_WORD, "main.py', ", "--nnodes ", *TORCH_WORDS),
        *AIRANK_WORDS,
    ),
    near=r"^\s*DLL .{1,40} - (?:Epoch: \d{1,9} Iteration: \d{1,15}(?! Validation)|Summary:)"
    rf"(?:\s{{1,9}}train\.loss\b|\s.{{0,4000}}?\btrain\.total_ips\b|{TORN})|{TORN_HEAD}|"
    + json_near(r"\[(?:\d{1,9}, ?\d{1,15})?\]", r"train\.(?:total|compute)_ips"),
    rows=(
        Row(
            "record",
            rf"{DLL}Epoch: (?P<epoch>\d{{1,9}}) Iteration: (?P<step>\d{{1,15}})\s{{1,9}}"
            rf"{BEFORE}train\.total_ips : (?P<rate>{FIGURE}){AFTER}",
            {"train.loss": "loss"},
            PAIRS,
        ),
        Row(
            "record",
            json_line(_STEP, r"train\.total_ips", rf"(?P<rate>{FIGURE})"),
            {"train.loss": "loss"},
            JSON_PAIRS,
        ),
        *(
            Row(
                "summary",
                json_line(r"\[\]", r"train\.(?:total|compute)_ips", FIGURE, top1),
                {"stamp": "facts.ended", **_SUMMARY},
                JSON_PAIRS,
                end=True,
            )
            for top1 in (_TOP1, "")
        ),
        Row("note", json_line(r"\[\d{1,9}\]", r"val\.top1", _PERCENT)),
        *(
            Row(
                "start",
                json_line('"PARAMETER"', "batch_size", r"\d{1,7}", said),
                _PARAMETERS,
                JSON_PAIRS,
                means=means,
            )
            for said, means in _JSON_PRECISION.items()
        ),
        Row(
            "summary",
            rf"{DLL}Summary:\s{{1,9}}{BEFORE}train\.total_ips : {FIGURE}"
            rf"(?:{AFTER}\s{{1,9}}val\.top1 : (?P<accuracy>{FIGURE}(?: %)?))?{AFTER}",
            {"stamp": "facts.ended", **_SUMMARY},
            PAIRS,
            end=True,
        ),
        Row(
            "summary",
            rf"{DLL}Summary:\s{{1,9}}{BEFORE}train\.compute_ips : {FIGURE}{AFTER}",
            _SUMMARY,
            PAIRS,
            end=True,
        ),
        Row(
            "note", rf"{DLL}Epoch: \d{{1,9}}\s{{1,9}}{BEFORE}val\.top1 : (?P<accuracy>{FIGURE}(?: %)?){AFTER}"
        ),
        Row(
            "start",
            rf"{_START}(?=.*? fp16 : True\b){PAIR}\s.*",
            _PARAMETERS,
            PAIRS,
            means={"precision": "fp16"},
        ),
        Row("start", rf"{_START}{PAIR}\s.*", _PARAMETERS, PAIRS),
        Row("note", rf"{_ARGV}(?=.*?'--amp').*", _OPTIONS, _SAID, means={"precision": "amp"}),
        Row("note", rf"{_ARGV}(?=.*?'--fp16').*", _OPTIONS, _SAID, means={"precision": "fp16"}),
        Row("note", rf"{_ARGV}.*", _OPTIONS, _SAID, means={"precision": "fp32"}),
        Row("note", r"(?:[=>]{1,20} ?)?--nnodes (?P<hosts>\d{1,6}) --node_rank .{1,400}"),
        *torch_rows(r"(?:main|launch)\.py", {}, {"": ""}),
        *AIRANK_ROWS,
    ),
    finish=_finish,
)
