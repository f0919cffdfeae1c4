"""The records of a diagnosis: what a host's probes said, what its inventory states, what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

SEVERITIES = ("blocking", "warning", "info")  # the worst first; info leaves a host ready
MOST = 200_000  # characters of a probe's output
LONG = {"gpu_query": 1_000_000}  # ... of those that need more: one card takes 14 kB


@dataclass(frozen=True, slots=True)
class Probe:
    """What one look at a host gave. ``status`` is None where it did not end by itself, or did not start.

    ``out`` and ``err`` are text of at most ``MOST`` characters, or as ``LONG`` has it; ``why`` is None,
    "missing" (no such program or file), "timeout" or "needs root". ``argv`` is what ran: ("read", PATH...)
    for files, ("python", NAME) for functions.
    """

    argv: tuple[str, ...] = ()
    status: int | None = None
    out: str = ""
    err: str = ""
    seconds: float = 0.0
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Stated:
    """What the inventory states of a host: the variables that its docs name cluster_*; "" is not stated.

    ``cards`` are accelerators only where ``card_model`` is stated, else process slots.
    """

    cards: int = 0
    card_model: str = ""
    driver: str = ""
    fabric: str = ""  # infiniband, roce or ethernet
    interface: str = ""
    cidr: str = ""
    address: str = ""  # by which the other hosts reach it
    mpi_inside_image: bool = False  # workloads bring their own MPI
    adapters: str = ""  # NCCL_IB_HCA of cluster_env: those that NCCL takes
    ipv6: bool = False  # whether an IPv6 address may do for RoCE, by NCCL_IB_* of cluster_env

    @property
    def has_gpus(self) -> bool:
        """Whether the rules for accelerators apply."""
        return bool(self.card_model)

    @property
    def has_rdma(self) -> bool:
        """Whether the rules for RDMA apply."""
        return self.fabric in ("infiniband", "roce")


NO_PROBE = Probe(why="missing")


@dataclass(frozen=True, slots=True)
class HostView:
    """One host as the rules see it. ``unreachable`` says why nothing is known of it: no probes then."""

    name: str
    probes: Mapping[str, Probe] = field(default_factory=dict)
    unreachable: str | None = None
    stated: Stated = field(default_factory=Stated)

    def probe(self, name: str) -> Probe:
        """The probe of that name; one that is "missing" where the host has none."""
        return self.probes.get(name, NO_PROBE)

    def text(self, name: str) -> str:
        """What a probe printed where it ended with status 0, else ""."""
        probe = self.probe(name)
        return probe.out if probe.status == 0 else ""

    def data(self, name: str) -> Any:
        """The JSON that a probe printed where it ended with status 0, else None; broken JSON is None too."""
        try:
            return json.loads(self.text(name))
        except (ValueError, RecursionError):
            return None


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that can be wrong. ``title``, ``cause`` and ``remedy``: a sentence each, without a stop."""

    code: str
    severity: str
    title: str
    cause: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that a host breaks: ``evidence`` is the line that shows it, ``detail`` what it means here.

    ``host`` is always a host's name: of two that differ, the one that is unlike most.
    """

    code: str
    host: str
    evidence: str
    detail: str


class RuleModule(Protocol):
    """What a module ``rules_*`` of the package has. ``check`` sees only hosts that could be reached."""

    __name__: str
    RULES: tuple[Rule, ...]

    def check(self, hosts: Sequence[HostView]) -> Iterator[Finding]:
        """Yield what is wrong, in any order."""
        ...
