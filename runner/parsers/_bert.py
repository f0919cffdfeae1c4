"""Parts that the logs of NVIDIA's two BERT examples share: what their launch scripts echo (``set -x``).

Form, on whichever stream the shell traces to::

    + batch_size=96                         of one card, of one pass
    + num_gpus=8                            all cards
    + precision=fp16
    + gradient_accumulation_steps=704       TensorFlow: num_accumulation_steps_phase1

and the command lines of ``_launch``, each program with options of its own.
"""

from __future__ import annotations

from dataclasses import replace

from runner.model import LogRun
from runner.parsers._engine import Row
from runner.parsers._launch import with_launcher
from runner.parsers._values import count

SHELL_WORDS = ("+ batch_size=", "+ num_gpus=", "+ precision=", "accumulation_steps")
_ROWS = (
    Row("note", r"\+ batch_size=(?P<batch_size>\d{1,7})"),
    Row("note", r"\+ num_gpus=(?P<cards>\d{1,6})"),
    Row("note", r"\+ precision=(?P<precision>\w{1,20})"),
    Row(
        "note",
        r"\+ (?:gradient_accumulation_steps|num_accumulation_steps_phase1)=(?P<passes>\d{1,7})",
        {"passes": "facts.passes"},
    ),
)
SHELL_ROWS = tuple(row._replace(behind=False) for row in _ROWS)


def with_accumulation(run: LogRun) -> LogRun:
    """Give the global batch of a run that adds up the gradients of several passes (fact ``passes``)."""
    run, passes = with_launcher(run), count(run.facts.get("passes"))
    if not passes or not run.cards or not run.batch_size:
        return run
    return replace(run, global_batch=run.cards * run.batch_size * passes)
