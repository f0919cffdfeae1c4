"""PaddlePaddle PaddleNLP, BERT pre-training: the lines of ``run_pretrain.py`` on the first card.

``ips`` is the rate of one card over the steps since the record before. Gradients of several passes may be
added up (``gradient_merge_steps``), which makes one record in some slow. Schema::

    Namespace(... batch_size=N, ... logging_steps=N, ... max_steps=N, ... use_amp=False, ...)
    total step: STEP, epoch: E, batch: B, loss: X, avg_reader_cost: S sec, avg_batch_cost: S sec,
                      avg_samples: X, ips: RATE sequences/sec             a record, one line
    global step STEP, epoch: E, batch: B, loss: X, speed: X step/s        first release: batch size x speed
    -----------  Configuration Arguments -----------                   or, a line for each:
    batch_size: N
    python -u .../run_pretrain.py ... --batch_size N --use_amp False ...  by the benchmark, last

Releases write ``tobal step:``, ``total step:`` and ``global step``, some with a logger's head, coloured.
Lines without ``ips`` are written by other programs as well and count below the settings of this one only.
``batch_size`` and ``avg_samples`` are of one card and one pass. No line ends a training: one that has come
to the last record before ``max_steps`` is complete.

Example::

    total step: 20, epoch: 0, batch: 19, loss: 10.987654, avg_reader_cost: 0.00012 sec, \
avg_batch_cost: 0.12345 sec, avg_samples: 64.00000, ips: 518.42850 sequences/sec
"""

from __future__ import annotations

from runner.model import LogRun
from runner.parsers._bert import with_accumulation
from runner.parsers._engine import FIGURE, Family, Row
from runner.parsers._paddle import AFTER, BEFORE, HEAD, LAUNCH_ROWS, LAUNCH_WORDS, by_step_times, finished

_FIELDS = {"loss": "loss", "avg_batch_cost": "step_s", "avg_samples": "batch_size"}
_FIGURES = r"(?<![\w.])(loss|avg_batch_cost|avg_samples): ([^\s,]{1,40})"
_COUNTED = r"(?:to[tb]al|global) step:? (?P<step>\d{1,15}), epoch: (?P<epoch>\d{1,9}), "
_OURS = {"section": "pretraining"}
_PARAMETERS = {"batch_size": "batch_size", "use_amp": "amp"}
_NAMES = {
    **_PARAMETERS,
    "max_steps": "facts.max_steps",
    "logging_steps": "facts.every",
    "gradient_merge_steps": "facts.passes",
}
_OPTIONS = r"(?<![\w])(?:--)?(\w{1,40})[= ]([\w.]{1,40})"
_SETTINGS = r"Namespace\((?=.*?\bmax_predictions_per_seq=).*\)"
_SETTING = rf"(?:{'|'.join(_NAMES)}): [\w.]{{1,40}}"
_COMMAND = r"(?:\S{1,99}/)?python[\d.]{0,5} (?=.*?\brun_pretrain\.py\b)"


def _finish(run: LogRun) -> LogRun:
    run = by_step_times(run)
    # A step is a pass; where the rate comes from its time, the batch of several passes would be too much
    return finished(run if run.scope == "seconds_per_step" else with_accumulation(run), first_step=1)


FAMILY = Family(
    name="paddlenlp_bert",
    framework="PaddlePaddle",
    model="BERT",
    unit="sequences/sec",
    scope="per_card",
    rule="trim:skip=10",
    words=(
        *("total step", "tobal step", "global step", "avg_samples: ", "Namespace(", "run_pretrain.py"),
        *(" Configuration Arguments ", *(f"{name}: " for name in _NAMES), "use_pure_fp16: "),
        *LAUNCH_WORDS,
    ),
    near=r"\b(?:to[tb]al|global) step:? \d{1,15}, |^(?=.*\bavg_samples: ).*\bips: ",
    rows=(
        Row(
            "record",
            rf"{HEAD}{_COUNTED}{BEFORE}ips: (?P<rate>{FIGURE}) sequences/s(?:ec)?{AFTER}",
            _FIELDS,
            _FIGURES,
        ),
        Row(
            "record",
            rf"{HEAD}{_COUNTED}batch: \d{{1,15}}, loss: [^\s,]{{1,40}}, speed: (?P<speed>{FIGURE}) steps?/s",
            _FIELDS,
            _FIGURES,
            within="pretraining",
        ),
        Row(
            "start",
            rf"(?=.*?\buse_pure_fp16=True\b){_SETTINGS}",
            _NAMES,
            _OPTIONS,
            means={"precision": "fp16", **_OURS},
        ),
        Row("start", _SETTINGS, _NAMES, _OPTIONS, means=_OURS),
        Row("start", r"-{3,40} {1,9}Configuration (?P<section>Arguments) -{3,40}"),
        Row("note", _SETTING, _NAMES, r"^(\w{1,40}): (\S{1,40})", within="Arguments"),
        Row("note", "use_pure_fp16: True", means={"precision": "fp16"}, within="Arguments"),
        Row(
            "note",
            rf"{_COMMAND}(?=.*? --use_pure_fp16[= ][Tt]rue\b).*",
            _PARAMETERS,
            _OPTIONS,
            means={"precision": "fp16"},
            behind=True,
        ),
        Row("note", rf"{_COMMAND}.*", _PARAMETERS, _OPTIONS, behind=True),
        *LAUNCH_ROWS,
    ),
    finish=_finish,
)
