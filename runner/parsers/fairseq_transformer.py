"""NVIDIA DeepLearningExamples, PyTorch, Transformer (fairseq), as logged since it logs with DLLogger.

Written by ``train.py`` on the first rank, for any number of cards; ``tokens/s`` is for all cards, over the
steps since the record before. Schema::

    | distributed env init. MASTER_ADDR: A, MASTER_PORT: N, WORLD_SIZE: N, RANK: N
    Namespace(... amp=False, arch='transformer_...', fp16=False, max_tokens=N, update_freq=[N], ...)
    | training on N GPUs
    | max tokens per GPU = N and max sentences per GPU = None        the batch size, in tokens
    Transformer | epoch E | step I |avg loss X |avg tokens X |tokens/s RATE |walltime S |       a record
    | Translated N sentences (N tokens) in Ss (X sentences/s, X tokens/s)      an evaluation, no record
    | Eval completed in: Ss | UNCASED BLEU X
    | done training in S seconds
    Transformer | epoch E | step () |avg loss X |walltime S |

The last record of an epoch covers fewer steps than the others. BLEU is no fraction: it is a fact.

Example::

    Transformer | epoch 0 | step 10 |avg loss 16.005 |avg tokens 37260.500 |tokens/s 67628.7 |walltime 17.2 |
"""

from __future__ import annotations

from dataclasses import replace

from runner.model import LogRun
from runner.parsers._airank import AIRANK_ROWS, AIRANK_WORDS, held_against_records
from runner.parsers._engine import FIGURE, NUMBER, Family, Row
from runner.parsers._nccl import NCCL_ROWS, NCCL_WORDS
from runner.parsers._values import count

_HEAD = r"Transformer \| epoch (?P<epoch>\d{1,9}) \| step "
_PAIR = r"[A-Za-z][A-Za-z/_]{0,30}(?: [A-Za-z/_]{1,30}){0,3} [^\s|]{1,40} ?\| ?"
_WORDS = (
    *("Transformer | ", "Namespace(", "| training on", "| done training", "| max tokens", "| Eval completed"),
    "| distributed env init",
)
_LOSS = r"(?<=\|)(avg loss) ([^\s|]{1,40})"
_OPTIONS = r"Namespace\((?=.*?\barch='transformer)(?=.*?\bmax_tokens=\d)"
_FIELDS = {"max_tokens": "batch_size", "amp": "amp", "fp16": "amp", "update_freq": "facts.update_freq"}
_OPTION = r"(?<=[ (])(max_tokens|amp|fp16|update_freq)=\[?(\w{1,20})"


def _finish(run: LogRun) -> LogRun:
    steps = count(run.facts.get("update_freq"))  # gradients of so many batches are added up
    if steps and run.global_batch:
        run = replace(run, global_batch=run.global_batch * steps)
    return held_against_records(run)


FAMILY = Family(
    name="fairseq_transformer",
    framework="PyTorch",
    model="Transformer",
    unit="words/sec",
    scope="global",
    rule="mean:skip=0",
    words=(*_WORDS, *AIRANK_WORDS, *NCCL_WORDS),
    near=r"^\s*Transformer \| epoch \d{1,9} \| (?:s|$)",
    rows=(
        Row(
            "record",
            rf"{_HEAD}(?P<step>\d{{1,15}}) \| ?(?:{_PAIR}){{0,20}}?tokens/s (?P<rate>{FIGURE}) ?\| ?"
            rf"(?:{_PAIR}){{0,20}}?walltime (?P<time>{FIGURE}) ?\| ?(?:{_PAIR}){{0,20}}",
            {"avg loss": "loss"},
            _LOSS,
        ),
        Row("note", rf"{_HEAD}\(\) \| ?(?:{_PAIR}){{1,20}}", {"epoch": "facts.epochs"}, end=True),
        Row("note", rf"\| done training in (?P<time_to_train_s>{NUMBER}) seconds", end=True),
        Row("note", r"\| training on (?P<cards>\d{1,6}) GPUs"),
        Row("note", r"\| distributed env init\. MASTER_ADDR: .{1,300}, WORLD_SIZE: (?P<cards>\d{1,6}), .*"),
        Row("note", r"\| max tokens per GPU = (?P<batch_size>\d{1,9}) and max sentences per GPU = \w{1,20}"),
        Row(
            "note",
            rf"\| Eval completed in: .{{1,40}} \| .{{0,20}}BLEU (?P<bleu>{NUMBER})",
            {"bleu": "facts.bleu"},
        ),
        Row("start", rf"{_OPTIONS}(?=.*?\bfp16=True\b).*", _FIELDS, _OPTION, means={"precision": "fp16"}),
        Row("start", rf"{_OPTIONS}(?=.*?\bamp=True\b).*", _FIELDS, _OPTION, means={"precision": "amp"}),
        Row("start", rf"{_OPTIONS}.*", _FIELDS, _OPTION),
        *AIRANK_ROWS,
        *NCCL_ROWS,
    ),
    finish=_finish,
)
