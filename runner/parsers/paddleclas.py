"""PaddlePaddle PaddleClas, any model: the lines of ``train.py`` on the first card (``workerlog.0``).

``ips`` is the rate of one card. It is a running mean that begins anew with each epoch (after its first 10
steps, in the dynamic trainer after its first 5), so neighbouring records say nearly the same. Schema::

    [DATE TIME] ppcls INFO: epoch:E   train step:STEP   lr: X, loss: X top1: X top5: X batch_cost: S s,
                            reader_cost: S s, ips: RATE samples/sec.              a record, one line
    [DATE TIME] ppcls INFO: END epoch:E   train  loss: X top1: X ...              an epoch: no record
    [DATE TIME] ppcls INFO: END epoch:E   valid  loss: X top1: X ...              an evaluation
    [DATE TIME] ppcls INFO: [Train][Epoch E/EPOCHS][Iter: STEP/STEPS]lr: X, ... batch_cost: Ss,
                            reader_cost: S, ips: RATE samples/s, eta: D           the dynamic trainer's record
    [DATE TIME] ppcls INFO: [Eval][Epoch E][Avg]loss: X, top1: X, ...             its evaluation
    DATE TIME INFO: epoch:E  , train step:STEP  , loss: X, lr: X, batch_cost: S s, reader_cost: S s,
                            ips: RATE images/sec, eta: D                          release 2.0 and 2.1
    [DATE TIME] ppcls INFO: Arch :                     the settings, as an indented tree: of these
    [DATE TIME] ppcls INFO:     name : ResNet50        below Arch; epochs below Global; batch_size, of one
    [DATE TIME] ppcls INFO:             batch_size : N      card, below Train (of DataLoader), of all in 2.0,
                                                            below TRAIN; below AMP what is set only for mixed
                                                            precision, if use_amp does not say otherwise

Where the settings say how many epochs there are, the end of the last one is the end of the training. The
launcher's dump of its arguments (``ips: 127.0.0.1``) holds the same word as a record and is none. Accuracies
of a training step may be negative, an error of the program.

Example::

    [2031/03/04 05:06:07] ppcls INFO: epoch:0   train step:10   lr: 0.100000, loss:  7.1234 top1:  0.0000 \
top5:  0.0039 batch_cost: 0.12345 s, reader_cost: 0.00123 s, ips: 1234.56789 samples/sec.
"""

from __future__ import annotations

from dataclasses import replace

from runner.model import LogRun
from runner.parsers._airank import AIRANK_ROWS, AIRANK_WORDS, held_against_records
from runner.parsers._engine import FIGURE, Family, Row
from runner.parsers._paddle import LAUNCH_ROWS, LAUNCH_WORDS, STAMP
from runner.parsers._problems import running_average, without
from runner.parsers._values import number

_INFO = rf"\[?{STAMP}\]?(?: ppcls| root)? INFO: {{1,40}}"
_PAIR = r"[A-Za-z_][\w().-]{0,60}: {1,9}[^\s,]{1,40}(?: s)?"
_BEFORE, _AFTER = rf"(?:{_PAIR},? {{1,9}}){{0,40}}?", r"(?:, eta: .{1,200})?"
_RATE = rf"ips: {{1,3}}(?P<rate>{FIGURE}) (?:samples|images)/s(?:ec)?\.?{_AFTER}"
_FIELDS = {"loss": "loss", "batch_cost": "step_s"}
_FIGURES = r"(?<![\w.])(loss|batch_cost): {1,9}([^\s,]{1,40}?)(?=s?[\s,])"
_SECTIONS = (
    "Global|Arch|ARCHITECTURE|Loss|Optimizer|OPTIMIZER|DataLoader|Train|TRAIN|Eval|Infer|VALID|Metric|AMP"
    "|PostProcess"
)
_WORDS = (
    *("ppcls INFO: ", "root INFO: ", " INFO: epoch:", " INFO: END epoch:"),
    *(" INFO: ARCHITECTURE :", " INFO: TRAIN :", " INFO: VALID :", " INFO:     name : "),
    *(" INFO:     batch_size : ", " INFO: epochs : "),
)


def _finish(run: LogRun) -> LogRun:
    ended, epochs = (number(run.facts.get(key)) for key in ("ended_epoch", "epochs"))
    first = 0 if "counts_from_0" in run.facts else 1
    if not run.complete and ended is not None and epochs and ended + 1 - first >= epochs:
        run = replace(run, complete=True, problems=without(run, "truncated"))
    if run.batch_size is None and run.cards and run.global_batch and run.global_batch % run.cards == 0:
        sources = {**run.sources, "batch_size": "log"}
        run = replace(run, batch_size=run.global_batch // run.cards, sources=sources)
    return held_against_records(running_average(run, "ips"))


FAMILY = Family(
    name="paddleclas",
    framework="PaddlePaddle",
    model=None,
    unit="images/sec",  # so its samples are called elsewhere
    scope="per_card",
    rule="trim:skip=10",
    words=(*_WORDS, "PaddleClas is powered by", "batch_cost: ", *LAUNCH_WORDS, *AIRANK_WORDS),
    near=(
        r" INFO: {1,9}(?:epoch:\d{1,9}[ ,]{1,9}train\b|\[Train\]\[Epoch [^\]]{0,40}\]\[Iter)"
        r"|^(?!.*(?:\[Eval\]|\bvalid|\beval|\bEND\b))(?=.*\bbatch_cost: ).*\bips: "
    ),
    rows=(
        Row(
            "record",
            rf"{_INFO}epoch:(?P<epoch>\d{{1,9}}) {{0,9}}[, ] {{0,9}}train step:(?P<step>\d{{1,15}})"
            rf" {{0,9}}[, ] {{0,9}}{_BEFORE}{_RATE}",
            _FIELDS,
            _FIGURES,
            means={"facts.mean_from": "10"},
        ),
        Row(
            "record",
            rf"{_INFO}\[Train\]\[Epoch (?P<epoch>\d{{1,9}})/\d{{1,9}}\]"
            rf"\[Iter: ?(?P<step>\d{{1,15}})/\d{{1,15}}\] ?{_BEFORE}{_RATE}",
            _FIELDS,
            _FIGURES,
            means={"facts.mean_from": "5"},
        ),
        Row(
            "note",
            rf"{_INFO}END epoch:(?P<ended>\d{{1,9}}) {{1,9}}train\s.*",
            {"ended": "facts.ended_epoch"},
            means={"facts.counts_from_0": "True"},
        ),
        Row(
            "note",
            rf"{_INFO}\[Train\]\[Epoch (?P<ended>\d{{1,9}})/(?P<epochs>\d{{1,9}})\]\[Avg\].*",
            {"ended": "facts.ended_epoch", "epochs": "facts.epochs"},
        ),
        Row(
            "note",
            rf"{_INFO}(?:END epoch:\d{{1,9}} {{1,9}}(?:valid|eval)|\[Eval\]\[Epoch \d{{1,9}}\]\[Avg\])\s?"
            rf".{{0,200}}?\btop1: {{1,3}}(?P<accuracy>{FIGURE})(?:[\s,].*)?",
        ),
        Row("start", rf"(?:{_INFO})?==\s{{1,40}}PaddleClas is powered by PaddlePaddle !\s{{1,40}}=="),
        Row("note", rf"{_INFO}(?P<section>{_SECTIONS}) ?:"),
        Row("note", rf"{_INFO}name ?: ?(?P<model>\w{{1,60}})", within="Arch"),
        Row("note", rf"{_INFO}name ?: ?(?P<model>\w{{1,60}})", within="ARCHITECTURE"),
        Row("note", rf"{_INFO}batch_size ?: ?(?P<batch_size>\d{{1,7}})", within="Train"),
        Row("note", rf"{_INFO}batch_size ?: ?(?P<global_batch>\d{{1,7}})", within="TRAIN"),
        Row("note", rf"{_INFO}epochs ?: ?(?P<epochs>\d{{1,7}})", {"epochs": "facts.epochs"}, within="Global"),
        Row("note", rf"{_INFO}use_amp ?: ?True", means={"precision": "amp"}, within="AMP"),
        Row("note", rf"{_INFO}use_amp ?: ?False", means={"precision": "fp32"}, within="AMP"),
        Row("note", rf"{_INFO}use_pure_fp16 ?: ?True", means={"precision": "fp16"}, within="AMP"),
        Row("note", rf"{_INFO}scale_loss ?: ?[\d.]{{1,20}}", means={"amp": "True"}, within="AMP"),
        Row("note", rf"{_INFO}train with paddle (?P<framework_version>\d[\w.+-]{{0,60}}) and device .*"),
        *LAUNCH_ROWS,
        *AIRANK_ROWS,
    ),
    finish=_finish,
)
