r"""OpenMMLab mmsegmentation (PyTorch), any model: the loggers of mmcv (0.x) and of mmengine (1.x).

Written by ``tools/train.py`` on the first rank, to standard error. There is no rate in it: a record holds the
seconds per step, a mean over the steps since the record before (mmengine: over the last 10 of them), in which
evaluations and checkpoints are counted. The rate is global batch / ``time``, so cards and batch size must be
known. Schema, where ``Iter [STEP/STEPS]`` may be ``Epoch [E][STEP/STEPS]``, of the epoch, as well::

    DATE TIME,MS - mmseg - INFO - Iter [STEP/STEPS]\tlr: X, eta: D, time: SECONDS, ... loss: X
    DATE TIME,MS - mmseg - INFO - Iter(val) [STEP]\tmIoU: X, ...                an evaluation, fractions
    YYYY/MM/DD TIME - mmengine - INFO - Iter(train) [STEP/STEPS]  lr: X  eta: D  time: SECONDS  ... loss: X
    YYYY/MM/DD TIME - mmengine - INFO - Iter(val) [N/N]    aAcc: X  mIoU: X ...  an evaluation, percentages
    {"mode": "train", "epoch": E, "iter": STEP, ... "decode.loss_ce": X, ... "time": S}    mmcv's .log.json
    {"lr": X, ... "decode.loss_ce": X, ... "time": S, "iter": STEP, ...}     mmengine's vis_data/scalars.json

Other programs write the last three as well: it is the losses of the decoder that make them mmsegmentation's.
The first mmengine left out the year. Of the settings, which the head of the log prints::

    Distributed training: False                     then gpu_ids = range(0, N) are the cards; where it is True
    gpu_ids = range(0, N)                           older releases leave 1 there, so that only more counts
    GPU number: N                                   mmengine: all cards
    samples_per_gpu=N,                              mmengine: batch_size=N, below train_dataloader = dict(
    optimizer_config = dict(type='Fp16OptimizerHook', ...)    mmengine: type='AmpOptimWrapper'
    {"env_info": "...", ... "config": "... samples_per_gpu=N, ..."}     all of them in one: mmcv's .log.json
    + python -m torch.distributed.launch --nproc_per_node=N ./tools/train.py ...
    workflow: [('train', 1)], max: N iters          or epochs; the checkpoint of the last one is the end

Example::

    2021-03-04 05:06:07,123 - mmseg - INFO - Iter [50/8000]\tlr: 9.9e-03, time: 0.456, ... loss: 1.2345
"""

from __future__ import annotations

from dataclasses import replace

from runner.model import LogRun
from runner.parsers._airank import AIRANK_ROWS, AIRANK_WORDS, held_against_records
from runner.parsers._engine import FIGURE, Family, Row
from runner.parsers._launch import TORCH_WORDS, torch_rows, with_launcher
from runner.parsers._problems import without
from runner.parsers._values import count

_COLOUR = r"(?:\x1b\[[0-9;]{0,20}m){0,4}"  # mmengine colours this one word; read from a file it is gone
_STAMP = r"(?P<stamp>(?:\d{4}[-/])?\d\d[-/]\d\d \d\d:\d\d:\d\d(?:,\d{3})?)"
_INFO = rf"{_STAMP} - (?:mmseg|mmengine) - {_COLOUR}INFO{_COLOUR} - "
_BREAK = r"(?:, ?|\s{1,9})"
_PAIR = r"[A-Za-z_][\w./-]{0,99}: {1,3}(?:-?\d{1,9} days?, )?[^\s,]{1,40}"  # eta may say ``1 day, 2:03:04``
_BEFORE, _AFTER = rf"(?:{_PAIR}{_BREAK}){{0,120}}?", rf"(?:{_BREAK}{_PAIR}){{1,120}}"  # else cut off
_TIME = rf"\s{{1,9}}{_BEFORE}time: {{1,3}}(?P<step_s>{FIGURE})"
_ITER = r"\[ {0,15}(?P<step>\d{1,15})/ {0,15}(?P<steps>\d{1,15})\]"
_IN_EPOCH = r"\[ {0,9}(?P<epoch>\d{1,9})\]\[ {0,15}(?P<step>\d{1,15})/ {0,15}\d{1,15}\]"
_OURS = r"(?=.{0,300} - mmseg - |.*\bdecode\w{0,20}\.)"  # mmengine logs for any program
_LOSS = r"(?<![\w./])(loss): {1,3}([^\s,]{1,40})"
_JSON = r'"(iter|epoch|time|loss)": ?([^\s,"{}]{1,40})'
_OF_JSON = {"iter": "step", "epoch": "epoch", "time": "step_s", "loss": "loss"}
_SCALARS = r'(?=.*"decode\w{0,20}\.)(?=.*"time": ?[-\d.NI])(?=.*"iter": ?\d)\{(?!"mode": ?"(?!train")).*\}'
_HEAD = r'\{"env_info": "(?=.*?\\nPyTorch: (?P<framework_version>\d[^\s\\"]{0,60}))'
_OF_HEAD = {"samples_per_gpu": "batch_size", "gpu_ids": "cards"}
_IN_HEAD = r"(?<=\\n|  )(samples_per_gpu|gpu_ids)(?:=| = range\(0, (?=[2-9]|1\d))(\d{1,7})\b"
_PRECISIONS = {
    r"(?=.*?type='Fp16OptimizerHook')": {"precision": "fp16"},
    r"(?=.*?\\noptimizer_config = dict\()": {"precision": "fp32"},
    "": {},
}
_MEASURE = rf"(?P<accuracy>{FIGURE})[,\s].*"
_NEAR = (
    r" - (?:mmseg|mmengine) - INFO - (?:Iter|Epoch)(?:\(train\))? {0,9}\["
    r'|^(?!.*\((?:val|test)\)).*\bdata_time: |^\{"(?!mode": ?"val").*"decode'
)
_VAL = r"(?:Iter|Epoch)\(val\)"
_UNITS = r"\d{1,15} (?:iter|epoch)"
_WORDS = (
    *(
        " - mmseg - ",
        " - mmengine - ",
        "data_time: ",
        "System environment",
        "GPU ",
        "PyTorch: ",
        "Distributed training: ",
    ),
    *("gpu_ids = ", "samples_per_gpu=", "batch_size=", "_dataloader = ", "optimizer_config = "),
    *("OptimWrapper'", "OptimizerHook'", "type='D", "type='HRNet'", '"decode', '"mIoU": ', '{"env_info": '),
    *TORCH_WORDS,
)


def _finish(run: LogRun) -> LogRun:
    """Find out whether the last step has been saved: the last record may be of an earlier one."""
    last = run.records[-1].done if run.records else None
    facts = dict(run.facts)
    saved, total = facts.pop("saved", None), facts.pop("total", None)
    if total is None and last and run.records[-1].step:
        total = f"{run.records[-1].step / last:.0f} iter"
    if not run.complete and count((saved or "").split(" ")[0]) and saved == total:
        run = replace(run, complete=True, problems=without(run, "truncated"))
    return held_against_records(with_launcher(replace(run, facts=facts)))


FAMILY = Family(
    name="mmseg",
    framework="PyTorch",
    model=None,
    unit="samples/sec",
    scope="seconds_per_step",
    rule="harmonic:skip=2",
    words=(*_WORDS, *AIRANK_WORDS),
    near=_NEAR,
    rows=(
        Row("record", rf"{_OURS}{_INFO}Iter(?:\(train\))? {_ITER}{_TIME}{_AFTER}", {"loss": "loss"}, _LOSS),
        Row(
            "record",
            rf"{_OURS}{_INFO}Epoch(?:\(train\))? {{1,9}}{_IN_EPOCH}{_TIME}{_AFTER}",
            {"loss": "loss"},
            _LOSS,
        ),
        Row("record", _SCALARS, _OF_JSON, _JSON),
        Row("note", rf"{_INFO}{_VAL} {{1,9}}\[[\d/ \]\[]{{1,60}}\].*?[,\s]mIoU: {{1,3}}{_MEASURE}"),
        Row("note", rf'(?=.*\}}\Z)\{{(?:.*?[{{ ])?"mIoU": ?(?P<accuracy>{FIGURE})(?:,.*)?\}}'),
        Row("note", rf"{_INFO}workflow: .{{1,200}}, max: (?P<total>{_UNITS})s", {"total": "facts.total"}),
        Row(
            "note",
            rf"{_INFO}Saving checkpoint at (?P<saved>{_UNITS})(?:ation)?s",
            {"saved": "facts.saved"},
        ),
        *(
            Row("start", rf"{_HEAD}{said}.*", _OF_HEAD, _IN_HEAD, means=means)
            for said, means in _PRECISIONS.items()
        ),
        *torch_rows(r"tools/train\.py", {}, {"": ""}),
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
        Row("note", r"type='(?P<precision>Fp16)OptimizerHook'.*"),
        Row("note", r"optimizer_config = dict\(.*\)", means={"precision": "fp32"}),
        Row("note", r"(?:optim_wrapper = dict\(.{0,200}?)?type='(?P<precision>Amp)OptimWrapper'.*"),
        Row(
            "note", r"(?:optim_wrapper = dict\(.{0,200}?)?type='OptimWrapper'.*", means={"precision": "fp32"}
        ),
        Row(
            "note",
            r"(?:decode_head=dict\()?type='DepthwiseSeparableASPPHead'\){0,9},?",
            means={"model": "DeepLabV3P"},
        ),
        Row("note", r"type='HRNet'\){0,9},?", means={"model": "HRNet"}),
        *AIRANK_ROWS,
    ),
    finish=_finish,
)
