"""Transformers of fairseq (PyTorch): NVIDIA DeepLearningExamples' copy, and fairseq itself, 0.9 to 0.12.

Written by ``train.py`` on the first rank, for any number of cards; the rate is for all cards, over the steps
since the record before. Schema of NVIDIA's, since it logs with DLLogger::

    | distributed env init. MASTER_ADDR: A, MASTER_PORT: N, WORLD_SIZE: N, RANK: N
    Namespace(... amp=False, arch='transformer_...', fp16=False, max_tokens=N, update_freq=[N], ...)
    | training on N GPUs
    | max tokens per GPU = N and max sentences per GPU = None        the batch size, in tokens
    Transformer | epoch E | step I |avg loss X |avg tokens X |tokens/s RATE |walltime S |       a record
    | Translated N sentences (N tokens) in Ss (X sentences/s, X tokens/s)      an evaluation, no record
    | Eval completed in: Ss | UNCASED BLEU X
    | done training in S seconds
    Transformer | epoch E | step () |avg loss X |walltime S |

The last record of an epoch covers fewer steps than the others. BLEU is no fraction: it is a fact. Of
fairseq itself, whose first two figures count the steps of the epoch (0.9 has neither date nor name)::

    DATE TIME | INFO | fairseq_cli.train | training on N devices (GPUs/TPUs)        and the others likewise
    DATE TIME | INFO | train_inner | epoch 001:   100 / 1102 loss=X, ... wps=RATE, ... num_updates=I, ...
    DATE TIME | INFO | train_inner | {"epoch": 1, "update": X, ... "wps": "RATE", ... "num_updates": "I", ...}
    DATE TIME | INFO | train | epoch 001 | loss X | ... | wps X | ...                the mean of an epoch
    | epoch 001:   100 / 1102 loss=X, ... wps=RATE, ... num_updates=I, ... wall=S    0.9

``wps`` of 0.9 is a mean since the epoch began. Settings are a Namespace, later ``{'_name': None, ...``. The
bar of ``--log-format tqdm`` is no record: it repeats its last figures with every step.

Example::

    Transformer | epoch 0 | step 10 |avg loss 16.005 |avg tokens 37260.500 |tokens/s 67628.7 |walltime 17.2 |
"""

from __future__ import annotations

from dataclasses import replace

from runner.model import LogRun
from runner.parsers._airank import AIRANK_ROWS, AIRANK_WORDS, held_against_records
from runner.parsers._engine import FIGURE, NUMBER, Family, Row
from runner.parsers._problems import running_average
from runner.parsers._values import count

_HEAD = r"Transformer \| epoch (?P<epoch>\d{1,9}) \| step "
_PAIR = r"[A-Za-z][A-Za-z/_]{0,30}(?: [A-Za-z/_]{1,30}){0,3} [^\s|]{1,40} ?\| ?"
_STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:,\d{3})?"
_SAID = rf"(?:{_STAMP} \| INFO \| [\w.]{{1,60}} )?\| "
_INNER = rf"(?P<stamp>{_STAMP}) \| INFO \| train_inner \| "
_BAR = r"epoch (?P<epoch>\d{1,9}): {1,9}\d{1,15} / \d{1,15} "
_ITEM = r"\w{1,40}=[^\s,=]{1,40}"
_WPS = rf"(?:{_ITEM}, ){{0,30}}?wps=(?P<rate>{FIGURE})(?:, {_ITEM}){{1,30}}"
_ITEMS = r"(?<![\w.])(loss|num_updates|wall)=([^\s,]{1,40})"
_JSON = (
    r'\{"epoch": (?P<epoch>\d{1,9}), "update": [\d.]{1,20}, (?=.*"num_updates": "\d)'
    rf'(?:[^{{}}]{{0,2000}}?, )?"wps": "(?P<rate>{FIGURE})"[^{{}}]{{0,2000}}\}}'
)
_QUOTED = r'"(loss|num_updates|wall)": "([^"]{1,40})"'
_OF_ITEM = {"loss": "loss", "num_updates": "step"}
_OF_OLD = {**_OF_ITEM, "wall": "time"}
_RUNNING = {"facts.running_mean": "of an epoch"}
_WORDS = (
    *("Transformer | ", "Namespace(", "| training on", "| done training", "| max tokens", "| Eval completed"),
    *(
        "| distributed env init",
        "wps=",
        '"wps": ',
        "| wps ",
        "|tokens/s ",
        "train_inner | ",
        "{'_name': None, ",
    ),
)
_LOSS = r"(?<=\|)(avg loss) ([^\s|]{1,40})"
_OPTIONS = rf"(?:{_STAMP} \| INFO \| [\w.]{{1,60}} \| )?Namespace\((?=.*?\barch=')(?=.*?\bmax_tokens=\d)"
_FIELDS = {
    **{"max_tokens": "batch_size", "amp": "amp", "fp16": "amp", "update_freq": "facts.update_freq"},
    **{"distributed_world_size": "cards", "arch": "facts.arch"},
}
_OPTION = r"(?<=[ (])(max_tokens|amp|fp16|update_freq|distributed_world_size|arch)=[\['\"]{0,2}(\w{1,80})"
_CONFIG = rf"{_STAMP} \| INFO \| fairseq_cli\.train \| \{{'_name': None, "
_KEY = r"'(max_tokens|amp|fp16|update_freq|distributed_world_size|arch)': [\['\"]{0,2}(\w{1,80})"
_NEAR = (
    r"^\s*Transformer \| epoch \d{1,9} \| (?:s|$)|\|tokens/s "
    r"|^(?=.*\bepoch \d{1,9}:).*\bwps=|^(?=.*\btrain_inner \| ).*\bwps\b"
)


def _finish(run: LogRun) -> LogRun:
    facts, arch = dict(run.facts), str(run.facts.get("arch", "transformer"))
    steps = count(facts.get("update_freq"))  # gradients of so many batches are added up
    if steps and run.global_batch:
        run = replace(run, global_batch=run.global_batch * steps)
    if not arch.startswith("transformer"):
        run = replace(run, model=arch)
    if facts.pop("running_mean", None):
        run = running_average(run, "wps")
    return held_against_records(replace(run, facts=facts))


FAMILY = Family(
    name="fairseq_transformer",
    framework="PyTorch",
    model="Transformer",
    unit="words/sec",
    scope="global",
    rule="mean:skip=0",
    words=(*_WORDS, *AIRANK_WORDS),
    near=_NEAR,
    rows=(
        Row(
            "record",
            rf"{_HEAD}(?P<step>\d{{1,15}}) \| ?(?:{_PAIR}){{0,20}}?tokens/s (?P<rate>{FIGURE}) ?\| ?"
            rf"(?:{_PAIR}){{0,20}}?walltime (?P<time>{FIGURE}) ?\| ?(?:{_PAIR}){{0,20}}",
            {"avg loss": "loss"},
            _LOSS,
        ),
        Row("record", rf"{_INNER}{_BAR}{_WPS}", _OF_ITEM, _ITEMS),
        Row("record", rf"{_INNER}{_JSON}", _OF_ITEM, _QUOTED),
        Row("record", rf"\| {_BAR}{_WPS}", _OF_OLD, _ITEMS, means=_RUNNING),
        Row("record", _JSON, _OF_OLD, _QUOTED, means=_RUNNING),
        Row(
            "summary",
            rf"(?:{_STAMP} \| INFO \| train )?\| epoch \d{{1,9}} \| loss .{{1,400}}? "
            rf"\| wps (?P<wps>{FIGURE}) \|.*",
            {"wps": "summary.epoch_wps"},
        ),
        Row("note", rf"{_HEAD}\(\) \| ?(?:{_PAIR}){{1,20}}", {"epoch": "facts.epochs"}, end=True),
        Row("note", rf"{_SAID}done training in (?P<time_to_train_s>{NUMBER}) seconds", end=True),
        Row("note", rf"{_SAID}training on (?P<cards>\d{{1,6}}) (?:GPUs|devices).{{0,40}}"),
        Row("note", r"\| distributed env init\. MASTER_ADDR: .{1,300}, WORLD_SIZE: (?P<cards>\d{1,6}), .*"),
        Row(
            "note",
            rf"{_SAID}max tokens per (?:GPU|device) = (?P<batch_size>\d{{1,9}}) "
            r"and max sentences per (?:GPU|device) = \w{1,20}",
        ),
        Row(
            "note",
            rf"\| Eval completed in: .{{1,40}} \| .{{0,20}}BLEU (?P<bleu>{NUMBER})",
            {"bleu": "facts.bleu"},
        ),
        Row("start", rf"{_OPTIONS}(?=.*?\bfp16=True\b).*", _FIELDS, _OPTION, means={"precision": "fp16"}),
        Row("start", rf"{_OPTIONS}(?=.*?\bamp=True\b).*", _FIELDS, _OPTION, means={"precision": "amp"}),
        Row("start", rf"{_OPTIONS}.*", _FIELDS, _OPTION),
        Row(
            "start",
            rf"{_CONFIG}(?=.*?'bf16': True\b).*",
            _FIELDS,
            _KEY,
            means={"precision": "bf16"},
        ),
        Row("start", rf"{_CONFIG}(?=.*?'fp16': True\b).*", _FIELDS, _KEY, means={"precision": "fp16"}),
        Row("start", rf"{_CONFIG}.*", _FIELDS, _KEY),
        *AIRANK_ROWS,
    ),
    finish=_finish,
)
