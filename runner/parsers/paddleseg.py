r"""PaddlePaddle PaddleSeg, any model: the lines of ``train.py`` on the first card (``workerlog.0``).

``ips`` is the rate of one card, over the steps since the record before; with the reading of data, so a new
epoch shows. Before 2.0 there is none, and ``epoch=E, iter=STEP/STEPS, ...``: then batch size / ``batch_cost``
is the rate. Later releases add the memory in use. Schema::

    DATE TIME [INFO]\t[TRAIN] epoch: E, iter: STEP/STEPS, loss: X, lr: X, batch_cost: S, reader_cost: S,
                              ips: RATE samples/sec | ETA HH:MM:SS                          a record, one line
    DATE TIME [INFO]\t[EVAL] #Images: N, mIoU: X, ...                                       an evaluation
    GPUs used: N                                    all cards, on all hosts
    batch_size: N                                   of one card; below Config Information
    DATE TIME [INFO]\tuse AMP to train. AMP level = O1       or: use amp to train
    Total Flops: N     Total Params: N              after the training, as is: Run successfully with command
                                                    - MODEL - python ... --precision=fp16 --batch_size=N ...

The launcher's dump of its arguments (``ips: 127.0.0.1``) holds the same word and is none of these. That no
line speaks of AMP proves nothing: heads are often cut off.

Example::

    2021-03-04 05:06:07 [INFO]\t[TRAIN] epoch: 1, iter: 5/200, loss: 2.3456, lr: 0.009876, \
batch_cost: 1.2345, reader_cost: 0.12345, ips: 3.4567 samples/sec | ETA 00:04:00
"""

from __future__ import annotations

from runner.model import LogRun
from runner.parsers._airank import AIRANK_ROWS, AIRANK_WORDS, held_against_records
from runner.parsers._engine import FIGURE, Family, Row
from runner.parsers._paddle import LAUNCH_ROWS, LAUNCH_WORDS, by_step_times

_INFO = r"\[?(?P<stamp>\d{4}[-/]\d\d[-/]\d\d \d\d:\d\d:\d\d)(?:,\d{3})?\]?\s{1,9}\[?\s{0,9}INFO\]?:?\s{1,9}"
_PAIR = r"[A-Za-z_]\w{0,40}[:=] ?[^\s,=]{1,40}(?: [A-Za-z][\w/]{0,20}(?=,|\s|$))?"
_BEFORE, _AFTER = rf"(?:{_PAIR}, ){{0,20}}?", rf"(?:, {_PAIR}){{0,20}}"
_COUNTED = r"epoch[:=] ?(?P<epoch>\d{1,9}), iter[:=] ?(?P<step>\d{1,15})/(?P<steps>\d{1,15}), "
_OPTIONS = {"precision": "precision", "batch_size": "batch_size"}
_OPTION = r"(?<= )--(precision|batch_size)[= ] ?(\w{1,20})"
_ETA = r"(?: \| ETA .{1,40})?"
_FIELDS = {"loss": "loss", "batch_cost": "step_s"}
_FIGURES = r"(?<![\w.])(loss|batch_cost)[:=] ?([^\s,]{1,40})"
_WORDS = (
    *(
        "[TRAIN]",
        "[EVAL]",
        "reader_cost",
        " Information-",
        "GPUs used: ",
        "GPU: [",
        "PaddlePaddle: ",
        "batch_size: ",
        "type: DeepLabV3P",
        "type: HRNet_W",
    ),
    *("use amp to train", "use AMP to train", "Total Flops: ", "Run successfully", *LAUNCH_WORDS),
)


def _finish(run: LogRun) -> LogRun:
    return held_against_records(by_step_times(run))


FAMILY = Family(
    name="paddleseg",
    framework="PaddlePaddle",
    model=None,
    unit="samples/sec",
    scope="per_card",
    rule="mean:skip=5",
    words=(*_WORDS, *AIRANK_WORDS),
    near=r"\[TRAIN\] epoch\b|^(?=.*\breader_cost\b).*\| ETA ",
    rows=(
        Row(
            "record",
            rf"{_INFO}\[TRAIN\] {_COUNTED}{_BEFORE}ips[:=] ?(?P<rate>{FIGURE}) samples/s(?:ec)?"
            rf"{_AFTER}{_ETA}",
            _FIELDS,
            _FIGURES,
        ),
        Row(
            "record",
            rf"{_INFO}\[TRAIN\] {_COUNTED}(?!.*\bips\b)(?=.*\bloss\b)(?=.*\bbatch_cost[:=] ?\d)"
            rf"{_PAIR}{_AFTER} \| ETA .{{1,40}}",
            _FIELDS,
            _FIGURES,
        ),
        Row(
            "note",
            rf"{_INFO}\[EVAL\] #Images[:=] ?\d{{1,9}}[, ] ?mIoU[:=] ?(?P<accuracy>{FIGURE})[, ].*",
        ),
        Row("start", r"-{3,99}Environment Information-{3,99}"),
        Row("note", r"-{3,99}(?P<section>Config) Information-{3,99}"),
        Row("note", r"batch_size: (?P<batch_size>\d{1,7})", within="Config"),
        Row("note", r"GPUs used: (?P<cards>\d{1,6})"),
        Row("note", r"GPU: \['GPU \d{1,4}: (?P<gpu>[^']{1,80})'.*"),
        Row("note", r"PaddlePaddle: (?P<framework_version>\d[\w.+-]{0,60})"),
        Row("note", rf"{_INFO}use (?:amp|AMP) to train\b.*", means={"precision": "amp"}),
        Row("note", r"type: (?P<model>DeepLabV3P|HRNet_W\d\d)"),
        Row("note", r"Total Flops: \d{1,18}\s{1,9}Total Params: \d{1,15}", end=True),
        Row("note", r"Run successfully with command - .*", _OPTIONS, _OPTION, end=True),
        *LAUNCH_ROWS,
        *AIRANK_ROWS,
    ),
    finish=_finish,
)
