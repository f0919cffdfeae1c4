"""Whether a host can be looked at, and whether a look at it ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runner.diagnosis import smi
from runner.diagnosis.model import Finding, HostView, Rule

RULES = (
    Rule(
        "host_unreachable",
        "blocking",
        "The host could not be looked at",
        "it is off, refuses the login, has no Python 3.8 or later, does not answer, or a limit or a startup"
        " file of the user keeps Python from running: the evidence is what it said",
        "log in by hand with the same user and port (ssh -v), mend what that shows, and look again",
    ),
    Rule(
        "probe_hangs",
        "warning",
        "A look at the host did not end within its deadline",
        "what it asks does not answer: a file server that is gone, a driver or a daemon that is stuck",
        "run the same command on the host; what hangs there hangs for training as well",
    ),
    Rule(
        "needs_root",
        "info",
        "Some looks need root and were left out",
        "the user is not root, and the inventory has no ansible_become or sudo asks for a password",
        "set ansible_become: true for a user whose sudo asks for no password, or leave it so",
    ),
)


def check(hosts: Sequence[HostView]) -> Iterator[Finding]:
    """Yield what keeps hosts from being looked at, whole or in part."""
    for host in hosts:
        if host.unreachable is not None:
            yield Finding("host_unreachable", host.name, host.unreachable, "nothing is known of this host")
        yield from _hanging(host)
        yield from _without_root(host)


def _hanging(host: HostView) -> Iterator[Finding]:
    for name, probe in sorted(host.probes.items()):
        if probe.why == "timeout" and not (name in smi.LOOKS and smi.hangs(host)):
            shown = f"{' '.join(probe.argv)} (ended after {probe.seconds:.0f} s)"
            yield Finding("probe_hangs", host.name, shown, f"{name} did not answer")


def _without_root(host: HostView) -> Iterator[Finding]:
    names = sorted(name for name, probe in host.probes.items() if probe.why == "needs root")
    if names:
        yield Finding("needs_root", host.name, ", ".join(names), f"{len(names)} looks left out")
