"""What is wrong with hosts, and what to do about it: probes in, findings out.

A module ``rules_*`` of this package has ``RULES`` and ``check(hosts)``; it is found by its name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, cast

from runner.diagnosis.model import SEVERITIES, Finding, HostView, Rule, RuleModule


@cache
def modules() -> tuple[RuleModule, ...]:
    """The modules of rules, in the order of their names."""
    found = sorted(info.name for info in pkgutil.iter_modules(__path__) if info.name.startswith("rules_"))
    return tuple(cast(RuleModule, importlib.import_module(f"{__name__}.{name}")) for name in found)


@cache
def rules() -> Mapping[str, Rule]:
    """Every rule by its code."""
    return {rule.code: rule for module in modules() for rule in module.RULES}


@cache
def blocking(subjects: tuple[str, ...]) -> frozenset[str]:
    """The codes of rules that block, of the modules for these subjects."""
    chosen = [each for each in modules() if each.__name__.rpartition("rules_")[2] in subjects]
    return frozenset(rule.code for each in chosen for rule in each.RULES if rule.severity == "blocking")


def diagnose(hosts: Sequence[HostView]) -> list[Finding]:
    """What is wrong with these hosts: in their order, the worst first.

    Rules see only hosts that could be reached, but for those of ``rules_reach``, which is about the others.
    """
    reached = [host for host in hosts if host.unreachable is None]
    found = [
        finding
        for module in modules()
        for finding in module.check(hosts if module.__name__.endswith(".rules_reach") else reached)
    ]
    order = {host.name: number for number, host in enumerate(hosts)}
    return sorted(
        found, key=lambda each: (order[each.host], SEVERITIES.index(rules()[each.code].severity), each.code)
    )


def document(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Findings for machines: each with what its rule says."""
    return [
        {
            "code": each.code,
            "severity": rules()[each.code].severity,
            "host": each.host,
            "detail": each.detail,
            "evidence": each.evidence,
            "cause": rules()[each.code].cause,
            "remedy": rules()[each.code].remedy,
        }
        for each in findings
    ]
