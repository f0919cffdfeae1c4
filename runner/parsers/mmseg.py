r"""OpenMMLab mmsegmentation (PyTorch), any model: the text logger of mmcv (0.x) and of mmengine (1.x).

Written by ``tools/train.py`` on the first rank, to standard error. There is no rate in it: a record holds the
seconds per step, a mean over the steps since the record before, in which evaluations and checkpoints are
counted. The rate is global batch / ``time``, so cards and batch size must be known. Schema::

    DATE TIME,MS - mmseg - INFO - Iter [STEP/STEPS]\tlr: X, eta: D, time: SECONDS, ... loss: X
    DATE TIME,MS - mmseg - INFO - Iter(val) [STEP]\tmIoU: X, ...                an evaluation, fractions
    YYYY/MM/DD TIME - mmengine - INFO - Iter(train) [STEP/STEPS]  lr: X  eta: D  time: SECONDS  ... loss: X
    YYYY/MM/DD TIME - mmengine - INFO - Iter(val) [N/N]    aAcc: X  mIoU: X ...  an evaluation, percentages

Of the settings, which the head of the log prints::

    Distributed training: False                     then gpu_ids = range(0, N) are the cards; where it is True
    gpu_ids = range(0, N)                           older releases leave 1 there, so that only more counts
    GPU number: N                                   mmengine: all cards
    samples_per_gpu=N,                              mmengine: batch_size=N, below train_dataloader = dict(
    optimizer_config = dict(type='Fp16OptimizerHook', ...)    mmengine: type='AmpOptimWrapper'

Example::

    2021-03-04 05:06:07,123 - mmseg - INFO - Iter [50/8000]\tlr: 9.9e-03, time: 0.456, ... loss: 1.2345
"""

from __future__ import annotations

from runner.parsers._airank import AIRANK_ROWS, AIRANK_WORDS, held_against_records
from runner.parsers._engine import FIGURE, Family, Row
from runner.parsers._nccl import NCCL_ROWS, NCCL_WORDS

_INFO = r"(?P<stamp>\d{4}[-/]\d\d[-/]\d\d \d\d:\d\d:\d\d(?:,\d{3})?) - (?:mmseg|mmengine) - INFO - "
_BREAK = r"(?:, ?|\s{1,9})"
_PAIR = r"[A-Za-z_][\w.-]{0,99}: {1,3}(?:\d{1,4} days?, )?[^\s,]{1,40}"  # eta may say ``1 day, 2:03:04``
_BEFORE, _AFTER = rf"(?:{_PAIR}{_BREAK}){{0,50}}?", rf"(?:{_BREAK}{_PAIR}){{0,50}}"
_ITER = r"Iter(?:\(train\))? \[ {0,15}(?P<step>\d{1,15})/ {0,9}(?P<steps>\d{1,15})\]\s{1,9}"
_LOSS = r"(?<![\w.])(loss): {1,3}([^\s,]{1,40})"
_WORDS = (
    *(" - INFO - ", "System environment", "GPU ", "PyTorch: ", "Distributed training: ", "gpu_ids = "),
    *("samples_per_gpu=", "batch_size=", "_dataloader = ", "optimizer_config = ", "OptimWrapper'", "type='D"),
    "type='HRNet'",
)

FAMILY = Family(
    name="mmseg",
    framework="PyTorch",
    model=None,
    unit="samples/sec",
    scope="seconds_per_step",
    rule="harmonic:skip=2",
    words=(*_WORDS, *AIRANK_WORDS, *NCCL_WORDS),
    near=r" - (?:mmseg|mmengine) - INFO - Iter(?:\(train\))? ?\[",
    rows=(
        Row(
            "record",
            rf"{_INFO}{_ITER}{_BEFORE}time: {{1,3}}(?P<step_s>{FIGURE}){_AFTER}",
            {"loss": "loss"},
            _LOSS,
        ),
        Row(
            "note",
            rf"{_INFO}Iter\(val\) \[[\d/ ]{{1,40}}\]\s{{1,9}}"
            rf"{_BEFORE}mIoU: {{1,3}}(?P<accuracy>{FIGURE}){_AFTER}",
        ),
        Row("start", rf"{_INFO}Environment info:|System environment:"),
        Row("note", r"GPU [\d,]{1,200}: (?P<gpu>\S.{0,80})"),
        Row("note", r"PyTorch: (?P<framework_version>\d\S{0,60})"),
        Row("note", rf"(?:{_INFO})?Distributed training: (?P<section>True|False)"),
        Row("note", r"gpu_ids = range\(0, (?P<cards>\d{1,6})\)", within="False"),
        Row("note", r"gpu_ids = \[\d{1,6}\]", within="False", means={"cards": "1"}),
        Row("note", r"gpu_ids = range\(0, (?P<cards>[2-9]|[1-9]\d{1,5})\)"),
        Row("note", r"GPU number: (?P<cards>\d{1,6})"),
        Row("note", r"samples_per_gpu=(?P<batch_size>\d{1,7}),?"),
        Row("note", r"(?P<section>\w{1,40}_dataloader) = dict\((?:batch_size=(?P<batch_size>\d{1,7}),.*)?"),
        Row("note", r"batch_size=(?P<batch_size>\d{1,7}),?", within="train_dataloader"),
        Row("note", r"optimizer_config = dict\(.{0,200}?type='\w{0,40}?(?P<precision>Fp16)OptimizerHook'.*"),
        Row("note", r"optimizer_config = dict\(.*\)", means={"precision": "fp32"}),
        Row("note", r"(?:optim_wrapper = dict\(.{0,200}?)?type='(?P<precision>Amp)OptimWrapper'.*"),
        Row(
            "note", r"(?:optim_wrapper = dict\(.{0,200}?)?type='OptimWrapper'.*", means={"precision": "fp32"}
        ),
        Row(
            "note",
            r"(?:decode_head=dict\()?type='DepthwiseSeparableASPPHead',?",
            means={"model": "DeepLabV3P"},
        ),
        Row("note", r"type='HRNet',?", means={"model": "HRNet"}),
        *AIRANK_ROWS,
        *NCCL_ROWS,
    ),
    finish=held_against_records,
)
