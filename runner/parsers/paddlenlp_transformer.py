"""PaddlePaddle PaddleNLP, Transformer (machine translation): the lines of ``train.py`` on the first card.

``ips`` is the rate of one card, in words (tokens), over the steps since the record before; their number
differs from step to step, so no batch size gives it. The record that crosses into the next epoch holds
the reading of the data and is slow. Schema::

    {'alpha': 0.6,                               the settings, one per line or all in one: of these
     'batch_size': N, 'max_iter': N, 'print_step': N, 'use_amp': False, 'use_pure_fp16': False
    [DATE TIME,MS] [    INFO] - step_idx: 0, epoch: 0, batch: 0, avg loss: X, normalized loss: X, ppl: X
    [DATE TIME,MS] [    INFO] - step_idx: STEP, epoch: E, batch: B, avg loss: X, normalized loss: X, ppl: X,
          avg_speed: X step/s, batch_cost: S sec, reader_cost: S sec, tokens: N, ips: RATE words/sec  a record

A line with a speed and without ``ips`` states no rate in words: it is counted among those without a figure.

Older releases write ``DATE TIME,MS-INFO: `` before the same, newer ones colours. ``batch_size`` is the
tokens of one card. No line ends a training: one that has come to the last record before ``max_iter``
is complete.

Example::

    2031-03-04 05:06:07,123-INFO: step_idx: 10, epoch: 0, batch: 10, avg loss: 9.876543, \
normalized loss: 8.765432, ppl: 19468.123456, avg_speed: 4.32 step/s, batch_cost: 0.23148 sec, \
reader_cost: 0.00012 sec, tokens: 43210, ips: 18667.18513 words/sec
"""

from __future__ import annotations

from functools import partial

from runner.parsers._engine import FIGURE, Family, Row
from runner.parsers._paddle import AFTER, BEFORE, HEAD, LAUNCH_ROWS, LAUNCH_WORDS, finished

_NAMES = {
    "batch_size": "batch_size",
    "use_amp": "amp",
    "max_iter": "facts.max_steps",
    "print_step": "facts.every",
}
_SETTING = r"'(batch_size|use_amp|max_iter|print_step)': ([^\s,}]{1,40})"
_STEP = r"step_idx: (?P<step>\d{1,15}), epoch: (?P<epoch>\d{1,9}), "

FAMILY = Family(
    name="paddlenlp_transformer",
    framework="PaddlePaddle",
    model="Transformer",
    unit="words/sec",
    scope="per_card",
    rule="trim:skip=5",
    words=(
        *(
            "step_idx: ",
            "normalized loss: ",
            "{'alpha': ",
            "'batch_size': ",
            "'use_amp': ",
            "'use_pure_fp16': ",
        ),
        *("'max_iter': ", "'print_step': ", *LAUNCH_WORDS),
    ),
    near=r"^(?=.*(?:\bstep_idx: \d|\bnormalized loss: )).*(?:\bips\b|speed: )",
    rows=(
        Row(
            "record",
            rf"{HEAD}{_STEP}{BEFORE}ips: (?P<rate>{FIGURE}) words/s(?:ec)?{AFTER}",
            {"avg loss": "loss", "batch_cost": "step_s"},
            r"(?<![\w.])(avg loss|batch_cost): ([^\s,]{1,40})",
        ),
        Row(
            "start",
            r"(?=.*?'use_pure_fp16': True\b)\{'(?:alpha|batch_size)': .*",
            _NAMES,
            _SETTING,
            means={"precision": "fp16"},
        ),
        Row("start", r"\{'(?:alpha|batch_size)': .*", _NAMES, _SETTING),
        Row("note", r"'use_pure_fp16': True[,}]?", means={"precision": "fp16"}),
        Row("note", r"'\w{1,40}': [^\s,}]{1,40}[,}]?", _NAMES, _SETTING),
        *LAUNCH_ROWS,
    ),
    finish=partial(finished, first_step=0),
)
