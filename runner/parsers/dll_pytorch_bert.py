"""NVIDIA DeepLearningExamples, PyTorch, BERT pre-training and fine-tuning: DLLogger lines on standard output.

Written by ``run_pretraining.py`` and ``run_squad.py`` on the first rank, for any number of cards. There is no
rate but one, in the last line: that of the whole run, for all cards; records have none. Schema::

    DLL DATE TIME - PARAMETER Config : ["Namespace(... fp16=True, gradient_accumulation_steps=N, ...)"]
    DLL DATE TIME - PARAMETER batch_size_per_gpu : N                    of one pass; train_batch_size
    DLL DATE TIME - Training Epoch: E Training Iteration: I  average_loss : X  ...  a record; step_loss
    DLL DATE TIME - Training Epoch: E Training Iteration: I  final_loss : X [None]  the last
    DLL DATE TIME -  e2e_train_time : S [s] training_sequences_per_second : RATE [unit] ...
    device: cuda:0 n_gpu: 1, distributed training: True, 16-bits training: True     n_gpu is its own

``dllogger.json`` beside it has the same as JSON lines, see ``_dll``. Without ``torch.distributed`` the
program drives ``n_gpu`` cards, which are all. ``exact_match`` and ``F1`` (percent) are facts, and what is
inferred (``inference_sequences_per_second``) is no training. With mixed precision the iteration goes back
where the loss scale overflows, to 0 even, so it is no step by which a new run could be known: records have
none, and a run begins at its Config. ``time_to_train_s`` is ``e2e_train_time``. The launch script's trace
says cards, batch size and precision; see ``_bert``.

Example::

    DLL 2031-03-04 05:06:07.123456 -  e2e_train_time : 1234.5 s training_sequences_per_second : 678.9 seq/s
"""

from __future__ import annotations

from runner.parsers._bert import SHELL_ROWS, SHELL_WORDS, with_accumulation
from runner.parsers._dll import (
    AFTER,
    BEFORE,
    DLL,
    JSON_PAIRS,
    JSON_WORD,
    PAIR,
    PAIRS,
    TORN_HEAD,
    json_line,
    json_near,
)
from runner.parsers._engine import FIGURE, Family, Row
from runner.parsers._launch import TORCH_WORDS, torch_rows

_FIGURES = {
    "training_sequences_per_second": "summary.training_sequences_per_second",
    "e2e_train_time": "time_to_train_s",
}
_CONFIG = rf"{DLL}PARAMETER Config : .{{0,9}}Namespace\("
_JSON_CONFIG = r'DLLL \{(?=.{0,400}?"step": ?"PARAMETER", ?"data": ?\{"Config": ?\["Namespace\()'
_SQUAD = {"exact": "facts.exact_match", "f1": "facts.f1"}
_SETTINGS = r"\b(gradient_accumulation_steps)=(\d{1,7})\b"
_NAMES = {"gradient_accumulation_steps": "facts.passes"}
_ALONE = r"device: .{1,60} n_gpu: (?P<cards>\d{1,4}),? distributed training: False, 16-bits training: "
_DEVICE = r"device: .{1,99}, 16-bits training: "
_LOSSES = {"average_loss": "loss", "final_loss": "loss", "step_loss": "loss"}
_JSON_LOSS = "(?:average_loss|step_loss|final_loss)"
_PROGRAM = r"run_(?:pretraining|squad)\.py"
_PASSES = {"gradient_accumulation_steps": "facts.passes"}
_ANY = {r"(?=.*?\s--(?:fp16|amp)\b)": "fp16", "": "fp32"}
_PRECISIONS = {  # of the settings; older releases know no amp
    r"(?=.*?\bamp=True\b)": {"precision": "amp"},
    r"(?=.*?\bfp16=True\b)": {"precision": "fp16"},
    r"(?=.*?\bfp16=False\b)": {"precision": "fp32"},
    "": {},
}

FAMILY = Family(
    name="dll_pytorch_bert",
    framework="PyTorch",
    model="BERT",
    unit="sequences/sec",
    scope="global",
    rule="summary",
    summary="training_sequences_per_second",
    words=(
        "training_sequences_per_second",
        *("DLL ", "16-bits training: ", JSON_WORD, *TORCH_WORDS),
        *SHELL_WORDS,
    ),
    near=r"(?<![\w.\"])training_sequences_per_second\b|^\s*DLL .{1,40} - Training Epoch: "
    r"(?!\d{1,9} Training Iteration: \d{1,15} Validation)"
    rf"|^\s*DLL .{{1,40}} - {{1,9}}e2e_train_time\b|{TORN_HEAD}|"
    + json_near(r"\[(?:\d{1,9}, ?\d{1,15})?\]", f"(?:{_JSON_LOSS}|training_sequences_per_second)"),
    rows=(
        Row(
            "record",
            rf"{DLL}Training Epoch: (?P<epoch>\d{{1,9}}) Training Iteration: \d{{1,15}}\s{{1,9}}"
            rf"{PAIR}(?:\s{{1,9}}{PAIR}){{0,50}}",
            _LOSSES,
            PAIRS,
        ),
        Row(
            "record",
            json_line(r"\[(?P<epoch>\d{1,9}), ?\d{1,15}\]", _JSON_LOSS),
            _LOSSES,
            JSON_PAIRS,
        ),
        Row(
            "summary",
            json_line(r"\[\]", "training_sequences_per_second", FIGURE),
            _FIGURES,
            JSON_PAIRS,
            end=True,
        ),
        Row(
            "summary",
            rf"{DLL}\s{{1,9}}{BEFORE}training_sequences_per_second : {FIGURE}{AFTER}",
            _FIGURES,
            PAIRS,
            end=True,
        ),
        *(
            Row("start", rf"{config}{said}.*", _NAMES, _SETTINGS, means=means)
            for config in (_CONFIG, _JSON_CONFIG)
            for said, means in _PRECISIONS.items()
        ),
        Row("note", rf"{DLL}PARAMETER (?:batch_size_per_gpu|train_batch_size) : (?P<batch_size>\d{{1,7}})"),
        Row(
            "note",
            json_line('"PARAMETER"', "(?:batch_size_per_gpu|train_batch_size)", r"(?P<batch_size>\d{1,7})"),
        ),
        Row("note", rf"{_ALONE}True", means={"precision": "fp16"}),
        Row("note", rf"{_ALONE}False", means={"precision": "fp32"}),
        Row(
            "note", rf"{DLL}\s{{1,9}}exact_match : (?P<exact>{FIGURE})\s{{1,9}}F1 : (?P<f1>{FIGURE})", _SQUAD
        ),
        Row("note", rf"{_DEVICE}True", means={"precision": "fp16"}),
        Row("note", rf"{_DEVICE}False", means={"precision": "fp32"}),
        *SHELL_ROWS,
        *torch_rows(_PROGRAM, _PASSES, _ANY),
    ),
    finish=with_accumulation,
)
