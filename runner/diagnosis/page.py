"""The page of all findings, docs/findings.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from runner.diagnosis.model import SEVERITIES, Rule, RuleModule

HEAD = """\
# Findings

What `python -m runner doctor` can find on hosts, made from the rules by `make docs`.

- `blocking`: training will not run, or not on all hosts.
- `warning`: it runs, and is slower than it need be or may end early.
- `info`: worth knowing; a host with nothing else is ready.
"""
TITLES = {
    "reach": "Whether a host can be looked at",
    "os": "Operating system, disks, runs",
    "limits": "Limits",
    "clock": "Clocks",
    "net": "Names and interfaces",
    "pairs": "Connections between hosts",
    "ssh": "Logins from the launch host",
    "mpi": "MPI",
    "jobs": "A job between hosts",
    "driver": "The driver, where the inventory states cluster_card_model",
    "gpu": "Accelerators, where the inventory states cluster_card_model",
    "links": "Links between accelerators",
    "container": "Containers, where the inventory states cluster_card_model",
    "nccl": "NCCL, where the inventory states cards and nccl-tests are there",
    "rdma": "RDMA, where the inventory states infiniband or roce as cluster_fabric",
}


def page(modules: Iterable[RuleModule]) -> str:
    """The page as Markdown, one section per module of rules."""
    by_subject = {module.__name__.rpartition("rules_")[2]: module.RULES for module in modules}
    subjects = [*TITLES, *sorted(by_subject.keys() - TITLES.keys())]
    parts = [
        HEAD,
        *(_section(TITLES.get(each, each), by_subject[each]) for each in subjects if each in by_subject),
    ]
    return "\n".join(parts)


def _section(title: str, rules: Iterable[Rule]) -> str:
    ordered = sorted(rules, key=lambda rule: (SEVERITIES.index(rule.severity), rule.code))
    return "\n".join([f"## {title}", "", *(line for rule in ordered for line in _entry(rule))])


def _entry(rule: Rule) -> Iterator[str]:
    yield f"### `{rule.code}`"
    yield ""
    yield f"{rule.title} ({rule.severity})."
    yield ""
    yield f"- Cause: {_plain(rule.cause)}."
    yield f"- Remedy: {_plain(rule.remedy)}."
    yield ""


def _plain(text: str) -> str:
    """Text in which Markdown sees nothing but text."""
    return "".join(f"\\{c}" if c in "\\`*[]<>" else c for c in text)
