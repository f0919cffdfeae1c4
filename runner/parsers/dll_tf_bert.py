"""NVIDIA DeepLearningExamples, TensorFlow 1.15, BERT: DLLogger lines on standard output.

Written by ``run_pretraining.py``, and without records by the programs for fine-tuning (``run_squad.py``), on
the first rank (Horovod), for any number of cards; every rate is for all cards. Schema::

    DLL DATE TIME - Iteration: I  throughput_train : RATE [unit] mlm_loss : X ... total_loss : X ...  a record
    DLL DATE TIME -  throughput_train : RATE [unit]                    the end: the mean without the warm-up

    INFO:tensorflow:hvd.size() = N hvd.rank() = 0
    INFO:tensorflow:***** Running training *****
    INFO:tensorflow:  Batch size = N                                   of one card, of one pass
    INFO:tensorflow:Total Training Time = S for Sentences = N
    INFO:tensorflow:Throughput Average (sentences/sec) = RATE          also what older releases end with

The JSON file beside it has the first two as JSON lines, see ``_dll``. Units are ``seq/s``, ``sequences/s`` or
none. With mixed precision an iteration repeats for as long as the loss scale falls, so its number is no key;
those records count. TensorFlow's own messages may be glued to the end of a line; absl repeats them with
another head. Batch size and average stand in the same words below an evaluation: they count only below a
training. The launch script's trace says cards, batch size, precision; see ``_bert``.

Example::

    DLL 2031-03-04 05:06:07.123456 - Iteration: 12  throughput_train : 321.987 seq/s mlm_loss : 9.8765 \
 nsp_loss : 0.6543  total_loss : 10.5308  avg_loss_step : 10.5000  learning_rate : 1.5e-05
"""

from __future__ import annotations

from runner.parsers._bert import SHELL_ROWS, SHELL_WORDS, with_accumulation
from runner.parsers._dll import (
    AFTER,
    BEFORE,
    DLL,
    JSON_PAIRS,
    JSON_WORD,
    PAIRS,
    TORN_HEAD,
    json_line,
    json_near,
)
from runner.parsers._engine import FIGURE, NUMBER, Family, Row
from runner.parsers._launch import MPI_WORDS, mpi_rows

_GLUED = r"(?:\s{1,9}(?:(?:INFO|WARNING):tensorflow:|[IWE]\d{4} \d\d:\d\d:\d\d).*)?"
_INFO = r"(?:INFO:tensorflow:|I\d{4} \d\d:\d\d:\d\d\.\d{1,9} {1,9}\d{1,20} [\w./-]{1,255}:\d{1,7}\] ) {0,9}"
_SUMMARY = {"mean": "summary.throughput_train"}
_PROGRAM = r"run_(?:pretraining|squad|classifier|ner)\.py"
_OPTIONS = {
    "train_batch_size": "batch_size",
    "num_accumulation_steps": "facts.passes",
    "num_accumulation_steps_phase1": "facts.passes",
}
_PRECISIONS = {
    r"(?=.*?\s--(?:use_fp16|amp)(?:=True)?(?:\s|$))": "fp16",
    r"(?=.*?\s--noamp(?:\s|$))": "fp32",
    "": "",
}

FAMILY = Family(
    name="dll_tf_bert",
    framework="TensorFlow",
    model="BERT",
    unit="sequences/sec",
    scope="global",
    rule="mean:skip=0",
    summary="throughput_train",
    words=(
        *("throughput_train", "DLL ", "***** Running ", "Throughput Average", "  Batch size = "),
        *(
            "hvd.size()",
            "Training Time = ",
            "Inference Time = ",
            *MPI_WORDS,
            JSON_WORD,
            *SHELL_WORDS,
        ),
    ),
    near=r"(?<![\w.\"])throughput_train\b|^\s*DLL .{1,40} - Iteration: \d{1,15}(?:\s{1,9}t[a-z_]{0,20})?\s*$"
    rf"|{TORN_HEAD}|" + json_near(r"(?:\d{1,15}\b|\[)", "throughput_train"),
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
        Row(
            "record",
            json_line(r"(?:\[(?=\d))?(?P<step>\d{1,15})\]?", "throughput_train", rf"(?P<rate>{FIGURE})"),
            {"total_loss": "loss"},
            JSON_PAIRS,
        ),
        Row("summary", json_line(r"\[\]", "throughput_train", rf"(?P<mean>{FIGURE})"), _SUMMARY, end=True),
        Row(
            "summary",
            rf"{_INFO}Throughput Average \(sentences/sec\) = (?P<mean>{FIGURE})",
            _SUMMARY,
            end=True,
            within="training",
        ),
        Row("note", rf"{_INFO}\*\*\*\*\* Running (?P<section>[a-z]{{1,20}}) \*\*\*\*\*"),
        Row("note", rf"{_INFO}Total (?P<section>Inference) Time = {NUMBER} for .{{1,80}}"),
        Row(
            "note",
            rf"{_INFO}Total Training Time = (?P<time_to_train_s>{NUMBER}) for Sentences = \d{{1,15}}",
            within="training",
        ),
        Row("note", rf"{_INFO}Batch size = (?P<batch_size>\d{{1,7}})", within="training"),
        Row("note", rf"{_INFO}hvd\.size\(\) = (?P<cards>\d{{1,6}}) hvd\.rank\(\) = \d{{1,6}}"),
        *mpi_rows(_PROGRAM, _OPTIONS, _PRECISIONS),
        *SHELL_ROWS,
    ),
    finish=with_accumulation,
)
