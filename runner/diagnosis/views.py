"""From a host's answer to what the rules see of it. An answer may hold anything: its form is checked here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runner.diagnosis import rules_jobs, rules_nccl
from runner.diagnosis.model import LONG, MOST, HostView, Probe, Stated
from runner.names import printable

WHY = ("missing", "timeout", "needs root")
OURS = (rules_jobs.PROBE, rules_nccl.PROBE)  # which no host may send


def view(name: str, answer: Mapping[str, Any] | str, stated: Stated) -> HostView:
    """The host of that name: from its document of schema runkit/probe, or from why there is none."""
    if isinstance(answer, str):
        return HostView(name, unreachable=answer, stated=stated)
    probes = answer.get("probes")
    found = (
        {_text(key): _probe(value, LONG.get(key, MOST)) for key, value in probes.items()}
        if isinstance(probes, Mapping)
        else {}
    )
    own = {key: probe for key, probe in found.items() if probe is not None and key not in OURS}
    return HostView(name, own, None, stated)


def evidence(text: str, most: int = 300) -> str:
    """Text of a host as one line that may be shown."""
    line = printable(" ".join(text[: 4 * most].split()))
    return line if len(line) <= most else f"{line[:most]}..."


def _probe(value: Any, most: int) -> Probe | None:
    if not isinstance(value, Mapping):
        return None
    argv, status, seconds = value.get("argv"), value.get("status"), value.get("seconds")
    return Probe(
        argv=tuple(_text(word) for word in argv) if isinstance(argv, list) else (),
        status=status if isinstance(status, int) and not isinstance(status, bool) else None,
        out=_text(value.get("out"), most),
        err=_text(value.get("err")),
        seconds=float(seconds) if isinstance(seconds, int | float) and abs(seconds) < 1e9 else 0.0,
        why=value["why"] if value.get("why") in WHY else None,
    )


def _text(value: Any, most: int = MOST) -> str:
    """Text of bounded length that can be written out, without the halves of characters that JSON can name."""
    return value[:most].encode("utf-8", "replace").decode() if isinstance(value, str) else ""
