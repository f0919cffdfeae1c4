"""NVIDIA DeepLearningExamples, TensorFlow 1.15, BERT pre-training: DLLogger lines on standard output.

Written by ``run_pretraining.py`` on the first rank (Horovod), for any number of cards; every rate is for all
cards. Schema::

    DLL DATE TIME - Iteration: I  throughput_train : RATE [unit] mlm_loss : X ... total_loss : X ...  a record
    DLL DATE TIME -  throughput_train : RATE [unit]                    the end: the mean without the warm-up

Units are ``seq/s``, ``sequences/s`` or none. With mixed precision an iteration repeats for as long as the
loss scale falls, so its number is no key; those records count. TensorFlow's own messages may be glued to the
end of a line. ``Throughput Average (sentences/sec)`` is printed for the training and, in the same words, for
the evaluation: it is not read. The launch script's trace says cards, batch size, precision; see ``_bert``.

Example::

    DLL 2031-03-04 05:06:07.123456 - Iteration: 12  throughput_train : 321.987 seq/s mlm_loss : 9.8765 \
 nsp_loss : 0.6543  total_loss : 10.5308  avg_loss_step : 10.5000  learning_rate : 1.5e-05
"""

from __future__ import annotations

from runner.parsers._bert import SHELL_ROWS, SHELL_WORDS, with_accumulation
from runner.parsers._dll import AFTER, BEFORE, DLL, PAIRS
from runner.parsers._engine import FIGURE, Family, Row
from runner.parsers._nccl import NCCL_ROWS, NCCL_WORDS

_GLUED = r"(?:\s{1,9}(?:(?:INFO|WARNING):tensorflow:|[IWE]\d{4} \d\d:\d\d:\d\d).*)?"

FAMILY = Family(
    name="dll_tf_bert",
    framework="TensorFlow",
    model="BERT",
    unit="sequences/sec",
    scope="global",
    rule="mean:skip=0",
    summary="throughput_train",
    words=("throughput_train", "DLL ", *SHELL_WORDS, *NCCL_WORDS),
    near=r"\bthroughput_train\b|^\s*DLL .{1,40} - Iteration: \d{1,15}(?:\s{1,9}t[a-z_]{0,20})?\s*$",
    rows=(
        Row(
            "record",
            rf"{DLL}Iteration: (?P<step>\d{{1,15}})\s{{1,9}}"
            rf"{BEFORE}throughput_train : (?P<rate>{FIGURE}){AFTER}{_GLUED}",
            {"total_loss": "loss"},
            PAIRS,
        ),
        Row(
            "summary",
            rf"{DLL}\s{{1,9}}{BEFORE}throughput_train : (?P<mean>{FIGURE}){AFTER}{_GLUED}",
            {"mean": "summary.throughput_train"},
            end=True,
        ),
        *SHELL_ROWS,
        *NCCL_ROWS,
    ),
    finish=with_accumulation,
)
