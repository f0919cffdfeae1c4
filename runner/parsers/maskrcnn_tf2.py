"""NVIDIA DeepLearningExamples, TensorFlow 2, Segmentation/MaskRCNN: the program's own lines.

Written by ``mask_rcnn_main.py`` to standard output on the first rank, for any number of cards. A record takes
several lines; the rate is for all cards, with one decimal. Up to the end of the warm-up (step 100) it is that
of one step, later a running mean without the warm-up; ``Average throughput`` is the last of them. Schema::

    [MaskRCNN] INFO    : [train] AMP is activated - Experiment Feature
    [MaskRCNN] INFO    : timestamp: SECONDS             per record, in this order
    [MaskRCNN] INFO    : iteration: STEP
    [MaskRCNN] INFO    : throughput: RATE samples/sec
    [MaskRCNN] INFO    : Total loss: X                  after the other losses
    [MaskRCNN] INFO    : Training Performance Summary   Evaluation Performance Summary has the same lines
    [MaskRCNN] INFO    : Average throughput: RATE samples/sec
    [MaskRCNN] INFO    : Total processing time: 0h 04m 09s
    [MaskRCNN] INFO    : Job finished with status: `SUCCESS`
    horovodrun -np 8 python .../mask_rcnn_main.py ... --train_batch_size 4 [--amp]   by benchmark_*.py

The launch line is the only one that names cards and batch size, and comes last. ``accuracy`` is the box AP
(IoU 0.50 to 0.95) as pycocotools prints it; the AP of the masks comes after it.

Example::

    [MaskRCNN] INFO    : throughput: 12.3 samples/sec
"""

from __future__ import annotations

from runner.parsers._airank import AIRANK_ROWS, AIRANK_WORDS, held_against_records
from runner.parsers._engine import FIGURE, NUMBER, Family, Row
from runner.parsers._launch import MPI_WORDS, mpi_rows

_INFO = r"\[MaskRCNN\] INFO {0,9}:\s{1,60}"
_RATE = rf"{FIGURE} samples/sec"
_LAUNCHED = {r"(?=.*?\s--(?:use_)?amp(?:\s|$))": "amp", "": "fp32"}

FAMILY = Family(
    name="maskrcnn_tf2",
    framework="TensorFlow",
    model="Mask R-CNN",
    unit="images/sec",
    scope="global",
    rule="summary",
    running=(100, 1000),
    summary="average_throughput",
    words=("[MaskRCNN]", "annotation type", "(AP)", *AIRANK_WORDS, *MPI_WORDS),
    near=r"\[MaskRCNN\] INFO {0,9}:\s{0,60}(?:Average )?(?:through|t(?:h(?:r(?:ou?)?)?)?$)",
    rows=(
        Row("head", rf"{_INFO}timestamp: (?P<time>{NUMBER})"),
        Row("head", rf"{_INFO}iteration: (?P<step>\d{{1,15}})"),
        Row("record", rf"{_INFO}throughput: (?P<rate>{FIGURE}) samples/sec"),
        Row("tail", rf"{_INFO}Total loss: (?P<loss>{FIGURE})"),
        Row("note", rf"{_INFO}(?P<section>Training|Evaluation) Performance Summary"),
        Row(
            "summary",
            rf"{_INFO}Average throughput: (?P<average>{FIGURE}) samples/sec",
            {"average": "summary.average_throughput"},
            within="Training",
        ),
        Row("note", rf"{_INFO}Average throughput: {_RATE}"),
        Row("note", rf"{_INFO}Total processing time: (?P<time_to_train_s>\d.{{0,30}}s)", within="Training"),
        Row("note", rf"{_INFO}Job finished with status: `SUCCESS`", end=True),
        Row("start", rf"{_INFO}Horovod successfully initialized ?\.\.\."),
        Row("note", rf"{_INFO}\[train\] AMP is activated\b.*", means={"precision": "amp"}),
        *mpi_rows(r"mask_rcnn_main\.py", {"train_batch_size": "batch_size"}, _LAUNCHED),
        Row("note", r".{0,40}annotation type \*(?P<section>\w{1,20})\*"),
        Row(
            "note",
            r"Average Precision {1,9}\(AP\) @\[ IoU=0\.50:0\.95 \| area= {1,9}all \| maxDets= {0,9}\d{1,4} \]"
            r" = (?P<accuracy>\d\.\d{1,9})",
            within="bbox",
        ),
        *AIRANK_ROWS,
    ),
    finish=held_against_records,
)
