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

Excerpts without the head are common: cards, batch size and precision then come from the log's name.

Example::

    DLL 2021-03-04 05:06:07.123456 - (0, 200) total_ips : 1234.5678
"""

from __future__ import annotations

from runner.parsers._dll import AFTER, BEFORE, DLL, PAIR, PAIRS
from runner.parsers._engine import FIGURE, Family, Row

_STEP = r"\((?:(?P<epoch>\d{1,9}), ?)?(?P<step>\d{1,15}),?\)"

FAMILY = Family(
    name="dll_tf_resnet50",
    framework="TensorFlow",
    model="ResNet50",
    unit="images/sec",
    scope="global",
    rule="mean:skip=5",
    summary="train_throughput",
    words=("total_ips", "train_throughput", "DLL ", "Num GPUs", "Per-GPU Batch Size", "Ending Model"),
    near=r"\btotal_ips\b|\btrain_throughput\b|^\s*DLL .{1,40} - \([\d, ]{0,40}\)?(?: t[a-z_]*)?\s*$",
    rows=(
        Row(
            "record",
            rf"{DLL}{_STEP} {BEFORE}total_ips : (?P<rate>{FIGURE}){AFTER}",
            {"total_loss": "loss", "loss": "loss", "cross_entropy": "loss"},
            PAIRS,
        ),
        Row(
            "summary",
            rf"{DLL}\(\) {BEFORE}train_throughput : (?P<train_throughput>{FIGURE}){AFTER}",
            {"train_throughput": "summary.train_throughput"},
            end=True,
        ),
        Row(
            "start",
            rf"{DLL}PARAMETER {PAIR}(?:\s.*)?",
            {"batch_size": "batch_size", "amp": "amp", "use_tf_amp": "amp", "precision": "precision"},
            PAIRS,
        ),
        Row(
            "note",
            rf"{DLL}\([\d, ]{{0,40}}\) {BEFORE}top1(?:_accuracy)? : (?P<accuracy>{FIGURE}(?: %)?){AFTER}",
        ),
        Row("note", r"Num GPUs (?P<cards>\d{1,6})"),
        Row("note", r"Per-GPU Batch Size (?P<batch_size>\d{1,7})"),
        Row("note", r"Ending Model Training ?\.\.\.", end=True),
    ),
)
