"""NVIDIA DeepLearningExamples, PyTorch, BERT pre-training: DLLogger lines on standard output.

Written by ``run_pretraining.py`` on the first rank, for any number of cards. There is no rate but one, in the
last line: that of the whole run, for all cards; records have none. Schema::

    DLL DATE TIME - PARAMETER Config : ["Namespace(... fp16=True, gradient_accumulation_steps=N, ...)"]
    DLL DATE TIME - PARAMETER batch_size_per_gpu : N                    of one pass
    DLL DATE TIME - Training Epoch: E Training Iteration: I  average_loss : X  ...  a record
    DLL DATE TIME - Training Epoch: E Training Iteration: I  final_loss : X [None]  the last
    DLL DATE TIME -  e2e_train_time : S [s] training_sequences_per_second : RATE [unit] ...
    device: cuda:0 n_gpu: 1, distributed training: True, 16-bits training: True     n_gpu is its own

With mixed precision the iteration goes back where the loss scale overflows, to 0 even, so it is no step by
which a new run could be known: records have none, and a run begins at its Config. ``time_to_train_s`` is
``e2e_train_time``. The launch script's trace says cards, batch size and precision; see ``_bert``.

Example::

    DLL 2031-03-04 05:06:07.123456 -  e2e_train_time : 1234.5 s training_sequences_per_second : 678.9 seq/s
"""

from __future__ import annotations

from runner.parsers._bert import SHELL_ROWS, SHELL_WORDS, with_accumulation
from runner.parsers._dll import AFTER, BEFORE, DLL, PAIR, PAIRS
from runner.parsers._engine import FIGURE, Family, Row
from runner.parsers._nccl import NCCL_ROWS, NCCL_WORDS

_FIGURES = {
    "training_sequences_per_second": "summary.training_sequences_per_second",
    "e2e_train_time": "time_to_train_s",
}
_CONFIG = rf"{DLL}PARAMETER Config : .{{0,9}}Namespace\("
_SETTINGS = r"\b(gradient_accumulation_steps)=(\d{1,7})\b"
_NAMES = {"gradient_accumulation_steps": "facts.passes"}
_DEVICE = r"device: .{1,99}, 16-bits training: "

FAMILY = Family(
    name="dll_pytorch_bert",
    framework="PyTorch",
    model="BERT",
    unit="sequences/sec",
    scope="global",
    rule="summary",
    summary="training_sequences_per_second",
    words=(
        *("Training Iteration: ", "Training Epoch: ", "training_sequences_per_second"),
        *("PARAMETER ", "16-bits training: ", *SHELL_WORDS, *NCCL_WORDS),
    ),
    near=r"\btraining_sequences_per_second\b|^\s*DLL .{1,40} - Training Epoch: ",
    rows=(
        Row(
            "record",
            rf"{DLL}Training Epoch: (?P<epoch>\d{{1,9}}) Training Iteration: \d{{1,15}}\s{{1,9}}"
            rf"{PAIR}(?:\s{{1,9}}{PAIR}){{0,50}}",
            {"average_loss": "loss", "final_loss": "loss"},
            PAIRS,
        ),
        Row(
            "summary",
            rf"{DLL}\s{{1,9}}{BEFORE}training_sequences_per_second : {FIGURE}{AFTER}",
            _FIGURES,
            PAIRS,
            end=True,
        ),
        Row("start", rf"{_CONFIG}(?=.*?\bamp=True\b).*", _NAMES, _SETTINGS, means={"precision": "amp"}),
        Row("start", rf"{_CONFIG}(?=.*?\bfp16=True\b).*", _NAMES, _SETTINGS, means={"precision": "fp16"}),
        Row("start", rf"{_CONFIG}.*", _NAMES, _SETTINGS),
        Row("note", rf"{DLL}PARAMETER batch_size_per_gpu : (?P<batch_size>\d{{1,7}})"),
        Row("note", rf"{_DEVICE}True", means={"precision": "fp16"}),
        Row("note", rf"{_DEVICE}False", means={"precision": "fp32"}),
        *SHELL_ROWS,
        *NCCL_ROWS,
    ),
    finish=with_accumulation,
)
