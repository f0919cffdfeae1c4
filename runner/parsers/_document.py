"""A run found in a log as ``parse --json`` shows it; docs/contracts.md says what each key means."""

from __future__ import annotations

from typing import Any

from runner.model import LogRun

KEYS = (
    *("log", "sha256", "kind", "family", "framework", "framework_version", "model"),
    *("gpu", "driver", "nccl", "transport"),
    *("cards", "hosts", "batch_size", "global_batch", "precision", "sources"),
    *("unit", "scope", "records", "lines_not_used", "rate", "rule", "steady", "rates"),
    *("time_to_train_s", "time_to_target_s", "accuracy", "complete", "problems"),
)


def document(run: LogRun) -> dict[str, Any]:
    """Make the JSON object of a run: its fields in the order of the contract, records as their number."""
    made = {key: getattr(run, key) for key in KEYS}
    made["records"] = len(run.records)
    made["sources"] = dict(run.sources)
    made["lines_not_used"] = dict(sorted(run.lines_not_used.items()))
    made["problems"] = [{"code": one.code, "line": one.line, "detail": one.detail} for one in run.problems]
    return made
