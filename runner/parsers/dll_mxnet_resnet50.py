"""NVIDIA DeepLearningExamples, MXNet, ResNet50 v1.5: DLLogger lines on standard output.

Written by ``train.py`` on the first rank (Horovod), for any number of cards; every rate is for all cards.
``benchmark.py``, which starts it, prints a table at the end: no rank, no tag of mpirun. Schema::

    DLL DATE TIME - PARAMETER arch : resnetv15  ... gpus : [0, 1]  ... dtype : float16  amp : False  ...
    DLL DATE TIME - Epoch: E Iteration: I  train.loss : X  train.ips : RATE [unit] train.lr : X      a record
    DLL DATE TIME - Epoch: E  train.loss : X  train.ips : RATE [unit]               an epoch
    DLL DATE TIME - Epoch: E  val.accuracy : X ...                                  an evaluation
    DLL DATE TIME - Summary: train.loss : X  train.ips : RATE [unit]                the end
    train.ips                                                                       the table, one per metric
               |    256    |                                                        batch size of a card
         8     |   10336   |                                                        cards, rate

The table's rate is the harmonic mean over the epochs after the first, with five digits: it is what rule
``summary`` means; in a log without a table, that of the Summary. Where it has several rows, for several runs
in one log, the last run has the last one. ``gpus`` are those of one host and no number of cards, except where
``kv_store`` is of one process; ``dllogger_log``, the file that ``benchmark.py`` gives each of its runs, ends
with the cards and the batch size of one (``report.json-8,256``). The JSON file beside it has the same as JSON
lines, see ``_dll``; ``benchmark.py`` echoes no command line.

Example::

    DLL 2031-03-04 05:06:07.123456 - Epoch: 1 Iteration: 19  train.loss : 6.7  train.ips : 1234.5 images/s
"""

from __future__ import annotations

from dataclasses import replace

from runner.model import LogRun
from runner.parsers._dll import (
    AFTER,
    BEFORE,
    DLL,
    JSON_PAIRS,
    JSON_WORD,
    PAIRS,
    TORN,
    TORN_HEAD,
    json_line,
    json_near,
    json_says,
)
from runner.parsers._engine import FIGURE, Family, Row
from runner.parsers._launch import MPI_WORDS, counted, mpi_rows
from runner.parsers._values import count

_OF_FILE = r"(?P<cards>\d{1,6}),(?P<batch_size>\d{1,7})"
_START = rf"{DLL}PARAMETER (?=.*?\barch : )(?:(?=.*? dllogger_log : \S{{1,400}}-{_OF_FILE}(?:\s|$))|)"
_ONE_PROCESS = r"(?=.*? gpus : \[(?P<gpus>\d[\d, ]{0,200})\])(?=.*? kv_store : (?:device|local|nccl) )"
_NAMES = {"dtype": "precision"}
_STEP = r"\[(?P<epoch>\d{1,9}), ?(?P<step>\d{1,15})\]"
_JSON_FILE = rf'(?:(?=.*?"dllogger_log": ?"[^"]{{1,400}}-{_OF_FILE}")|)'
_AMP = {json_says("amp", "true"): {"precision": "amp"}, "": {}}
_CELLS = r"(?:\s{1,40}[\d.]{1,20}\s{1,40}\|){0,40}"  # of a table: those before its last


def _finish(run: LogRun) -> LogRun:
    facts = dict(run.facts)
    gpus = facts.pop("gpus", None)
    run = counted(run, len(gpus.split(",")) if gpus else None)
    cards = count(facts.pop("last_row", None))
    if cards is None or cards == run.cards or run.sources.get("cards") != "log":
        return replace(run, facts=facts)
    whole = cards * run.batch_size if run.batch_size else None
    return replace(run, facts=facts, cards=cards, global_batch=whole)


FAMILY = Family(
    name="dll_mxnet_resnet50",
    framework="MXNet",
    model="ResNet50",
    unit="images/sec",
    scope="global",
    rule="summary",
    summary="table",
    words=("train.ips", "val.", "  |   ", "DLL ", JSON_WORD, *MPI_WORDS),
    near=r"^\s*DLL .{1,40} - (?:Epoch: \d{1,9} Iteration: \d{1,15}(?! Validation)|Summary:)"
    rf"(?:\s{{1,9}}train\.loss\b|\s.{{0,4000}}?\btrain\.ips\b|{TORN})|{TORN_HEAD}|"
    + json_near(r"\[(?:\d{1,9}, ?\d{1,15})?\]", r"train\.ips"),
    rows=(
        Row(
            "record",
            rf"{DLL}Epoch: (?P<epoch>\d{{1,9}}) Iteration: (?P<step>\d{{1,15}})\s{{1,9}}"
            rf"{BEFORE}train\.ips : (?P<rate>{FIGURE}){AFTER}",
            {"train.loss": "loss"},
            PAIRS,
        ),
        Row(
            "summary",
            rf"{DLL}Summary:\s{{1,9}}{BEFORE}train\.ips : (?P<mean>{FIGURE}){AFTER}",
            {"mean": "summary.train_ips"},
            end=True,
        ),
        Row(
            "note",
            rf"{DLL}Epoch: \d{{1,9}}\s{{1,9}}{BEFORE}val\.accuracy : (?P<accuracy>{FIGURE}(?: %)?){AFTER}",
        ),
        Row(
            "record",
            json_line(_STEP, r"train\.ips", rf"(?P<rate>{FIGURE})"),
            {"train.loss": "loss"},
            JSON_PAIRS,
        ),
        Row(
            "summary",
            json_line(r"\[\]", r"train\.ips", rf"(?P<mean>{FIGURE})"),
            {"mean": "summary.train_ips"},
            end=True,
        ),
        Row("note", json_line(r"\[\d{1,9}\]", r"val\.accuracy", rf"(?P<accuracy>{FIGURE})")),
        *(
            Row(
                "start",
                json_line('"PARAMETER"', "arch", '"[^"]{1,60}"', said + _JSON_FILE),
                _NAMES,
                JSON_PAIRS,
                means=means,
            )
            for said, means in _AMP.items()
        ),
        *mpi_rows(r"train\.py", {}, {"": ""}),
        Row("note", r"(?P<section>(?:train|val)\.\w{1,40})"),
        Row("note", rf"\|{_CELLS}\s{{1,40}}(?P<batch_size>\d{{1,7}})\s{{1,40}}\|", within="train.ips"),
        Row(
            "summary",
            rf"(?P<cards>(?P<last>\d{{1,6}}))\s{{1,40}}\|{_CELLS}\s{{1,40}}(?P<rate>{FIGURE})\s{{1,40}}\|",
            {"last": "facts.last_row", "rate": "summary.table"},
            end=True,
            within="train.ips",
        ),
        Row("start", rf"{_START}(?=.*? amp : True\b).*", _NAMES, PAIRS, means={"precision": "amp"}),
        Row("start", rf"{_START}{_ONE_PROCESS}.*", {**_NAMES, "gpus": "facts.gpus"}, PAIRS),
        Row("start", rf"{_START}.*", _NAMES, PAIRS),
    ),
    finish=_finish,
)
