"""What only shows where several logs are read together: the same log under two names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runner.model import LogRun, Problem

_NAMED = 4  # other names that a sentence holds


def told_twice(runs: Sequence[LogRun]) -> list[LogRun]:
    """Add a problem to each run whose log lies under another name as well, byte for byte.

    Copies pass for measurements of their own: of another number of nodes, another model, a repetition.
    """
    names: dict[str, list[str]] = {}
    for run in runs:
        if run.sha256 is not None and run.log not in names.setdefault(run.sha256, []):
            names[run.sha256].append(run.log)
    return [_with_other_names(run, names.get(run.sha256 or "", [])) for run in runs]


def _with_other_names(run: LogRun, names: Sequence[str]) -> LogRun:
    others = [name for name in names if name != run.log]
    if not others:
        return run
    listed = ", ".join(others[:_NAMED]) + (f" and {len(others) - _NAMED} more" * (len(others) > _NAMED))
    text = f"the same log lies under other names: {listed}"
    return replace(run, problems=(*run.problems, Problem("same_log_twice", None, text)))
