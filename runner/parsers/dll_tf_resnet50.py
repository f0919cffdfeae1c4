"""NVIDIA DeepLearningExamples, TensorFlow 1.15, ConvNets (ResNet50 v1.5): DLLogger lines on standard output.

Written by ``main.py --mode=training_benchmark`` and the training modes, for any number of cards. The program
logs on the first rank alone; ``total_ips`` is for all cards. Schema of a line::

    DLL DATE TIME - PARAMETER key : value  key : value ...      once; batch_size, amp (use_tf_amp, precision)
    Num GPUs N
    Per-GPU Batch Size N
    DLL DATE TIME - (EPOCH, STEP) total_ips : RATE [unit] ...   a record; training modes add losses
    DLL DATE TIME - () top1_accuracy : X ...                    an evaluation
    Ending Model Training ...
    DLL DATE TIME - () train_throughput : RATE [unit]           the mean over all steps after the warm-up

The file ``log.json`` beside it has the same as JSON lines, see ``_dll``; there the step is ``[EPOCH, STEP]``.
The echoed command line says cards, batch size and precision too. Other networks of the same program are told
by ``arch``. A last line with latencies is another program's. Excerpts without the head are common: cards,
batch size and precision then come from the log's name.

Example::

    DLL 2021-03-04 05:06:07.123456 - (0, 200) total_ips : 1234.5678
"""

from __future__ import annotations

from dataclasses import replace

from runner.model import LogRun
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
from runner.parsers._launch import MPI_WORDS, mpi_rows

_STEP = r"\((?:(?P<epoch>\d{1,9}), ?)?(?P<step>\d{1,15}),?\)"
_JSON_STEP = r"\[(?P<epoch>\d{1,9}), ?(?P<step>\d{1,15})\]"
_LOSSES = {"total_loss": "loss", "loss": "loss", "cross_entropy": "loss"}
_PARAMETERS = {
    "batch_size": "batch_size",
    "amp": "amp",
    "use_tf_amp": "amp",
    "precision": "precision",
    "arch": "facts.arch",
}
_JSON_AMP = {
    json_says("(?:use_tf_)?amp", "true"): {"precision": "amp"},
    json_says("(?:use_tf_)?amp", "false"): {"precision": "fp32"},
    "": {},
}
_TRAINS = r"(?=.*?\s--mode[ =]train)"  # other programs of this name have no modes
_LAUNCHED = {rf"{_TRAINS}(?=.*?\s--(?:use_tf_)?amp(?:\s|$))": "amp", _TRAINS: "fp32"}


def _finish(run: LogRun) -> LogRun:
    """Name the network: the program trains others as well, and others end with the same line."""
    model = run.facts.get("arch", "resnet50" if run.records else None)
    return run if model == "resnet50" else replace(run, model=model)


FAMILY = Family(
    name="dll_tf_resnet50",
    framework="TensorFlow",
    model="ResNet50",
    unit="images/sec",
    scope="global",
    rule="mean:skip=5",
    summary="train_throughput",
    words=(
        *("total_ips", "train_throughput", "DLL ", "Num GPUs", "Per-GPU Batch Size", "Ending Model"),
        *(JSON_WORD, *MPI_WORDS),
    ),
    near=r"(?<![\w.\"])total_ips\b|(?<![\w.\"])train_throughput\b"
    rf"|^\s*DLL .{{1,40}} - \((?:[\d, ]{{0,40}}$|\d{{1,9}}, ?\d{{1,15}}\){TORN})|{TORN_HEAD}|"
    + json_near(r"\[", "(?:total_ips|train_throughput)"),
    rows=(
        Row(
            "record",
            rf"{DLL}{_STEP} {BEFORE}total_ips : (?P<rate>{FIGURE}){AFTER}",
            _LOSSES,
            PAIRS,
        ),
        Row("record", json_line(_JSON_STEP, "total_ips", rf"(?P<rate>{FIGURE})"), _LOSSES, JSON_PAIRS),
        Row(
            "summary",
            rf"{DLL}\(\) (?!.*?_latency){BEFORE}train_throughput : (?P<train_throughput>{FIGURE}){AFTER}",
            {"train_throughput": "summary.train_throughput"},
            end=True,
        ),
        Row(
            "summary",
            json_line(r"\[\]", "train_throughput", rf"(?P<train_throughput>{FIGURE})", r"(?!.*?_latency)"),
            {"train_throughput": "summary.train_throughput"},
            end=True,
        ),
        Row("start", rf"{DLL}PARAMETER {PAIR}(?:\s.*)?", _PARAMETERS, PAIRS),
        *(
            Row(
                "start",
                json_line('"PARAMETER"', "batch_size", r"\d{1,7}", said),
                _PARAMETERS,
                JSON_PAIRS,
                means=means,
            )
            for said, means in _JSON_AMP.items()
        ),
        Row(
            "note",
            rf"{DLL}\([\d, ]{{0,40}}\) {BEFORE}top1(?:_accuracy)? : (?P<accuracy>{FIGURE}(?: %)?){AFTER}",
        ),
        Row(
            "note",
            json_line(r"\[[\d, ]{0,40}\]", "top1(?:_accuracy)?", rf"(?P<accuracy>{FIGURE})"),
        ),
        *mpi_rows(r"main\.py", {"batch_size": "batch_size"}, _LAUNCHED),
        Row("note", r"Num GPUs (?P<cards>\d{1,6})"),
        Row("note", r"Per-GPU Batch Size (?P<batch_size>\d{1,7})"),
        Row("note", r"Ending Model Training ?\.\.\.", end=True),
    ),
    finish=_finish,
)
