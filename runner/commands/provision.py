"""``provision``: make the hosts ready."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from runner.errors import Interrupted, UsageError
from runner.names import hint, printable, shown

if TYPE_CHECKING:
    from runner.io.ansible import Outcome
    from runner.io.events import Failure
    from runner.io.terminal import Display
    from runner.model import Cluster

HELP = "make the hosts ready: packages, names, ssh, limits, MPI, GPU driver, containers, RDMA"
EXAMPLE = "python -m runner -i lab provision --check"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``provision``."""
    parser.add_argument("--check", action="store_true", help="show what would change, and change nothing")
    parser.add_argument("--limit", metavar="HOSTS", help="only these hosts, with commas between")
    parser.add_argument(
        "--tags",
        metavar="TAGS",
        help="only these roles, with commas between; undo_tuning brings back what was tuned",
    )


def run(args: argparse.Namespace) -> int:
    """Return 0 when every host is ready, 1 when one is not; raises UsageError for the command line."""
    from runner import provision
    from runner.io import ansible, inventory
    from runner.io.signals import Signals
    from runner.io.terminal import Display

    cluster = inventory.outline(args.inventory)
    limit = _chosen("--limit", args.limit, [host.name for host in cluster.hosts], "host")
    tags = _chosen("--tags", args.tags, ansible.tags("provision"), "tag")
    log = Path("runs") / f"provision-{cluster.name}.log"
    display = Display(sys.stderr)
    ansible.refuse_closed_vaults(Path(cluster.path))
    values = inventory.hostvars(Path(cluster.path), ansible.inventory_list)
    with Signals() as signals:
        outcome = ansible.playbook(
            "provision",
            Path(cluster.path),
            {"ssh_trust_launch_host": cluster.hosts[0].name},  # the host that bench starts from
            log=log,
            cancelled=lambda: signals.count > 0,
            hosts=limit,
            check=args.check,
            tags=tags,
            watch=_Progress(display, len(limit or cluster.hosts)),
            strategy=provision.strategy(values.values()),
        )
    display.clear()
    if args.check:
        changes = ((each.host, f"{each.role}: {each.task}", each.diffs) for each in outcome.changes)
        nothing = "nothing would change"
        if not outcome.successful:
            nothing += " up to what failed; what comes behind it is not known"
        print("\n".join(provision.differences(changes)) or nothing)
    _tell(outcome, cluster)
    print(f"Ansible's own output: {log}", file=sys.stderr)
    if signals.count:
        again = "run provision again: what is done is not done twice"
        raise Interrupted(signals.last, f"provision ended by {signals.name}; {again}")
    print("\n".join(provision.recap(outcome.recap)))
    return 0 if outcome.successful and not outcome.ignored else 1


def _chosen(option: str, text: str | None, known: list[str] | tuple[str, ...], what: str) -> list[str]:
    """The words of an option, each of them known; none where it is not given. "" is no word, and not all."""
    words = [] if text is None else [word.strip() for word in text.split(",")]
    for word in words:
        if word not in known:
            named = shown(word) if word else "'' (an empty word)"
            raise UsageError(f"{option} {named}: no such {what}; {hint(word, known)}")
    return words


class _Progress:
    """Shows the task at hand, and how many hosts are done with it."""

    def __init__(self, display: Display, hosts: int) -> None:
        self._display, self._hosts, self._done = display, hosts, 0

    def __call__(self, role: str, task: str, host: str) -> None:
        self._done = self._done + 1 if host else 0
        self._display.show(f"{role}: {task.partition(' against ')[0]} {self._done}/{self._hosts}")


def _tell(outcome: Outcome, cluster: Cluster) -> None:
    """A line per note and per failure on standard error; hosts that say the same share one."""
    said: dict[str, list[str]] = {}
    for host, text in outcome.notes:
        said.setdefault(text, []).append(host)
    for text, hosts in said.items():
        names = [host.name for host in cluster.hosts if host.name in hosts]
        print(f"{', '.join(names)}: {printable(text)}", file=sys.stderr)
    for failure in (*outcome.failures, *outcome.ignored):
        where = f"{failure.role}: " if failure.role else ""
        print(f"runkit: {failure.host}: {where}{_reason(failure, cluster)}", file=sys.stderr)


def _reason(failure: Failure, cluster: Cluster) -> str:
    """What to tell of a failure. ssh keeps the fingerprint of an unknown key to itself: it is asked again."""
    from runner import provision
    from runner.io import ansible, inventory, ssh

    host = next((each for each in cluster.hosts if each.name == failure.host), None)
    if host and failure.unreachable and provision.is_unknown_key(failure.text):
        values = inventory.hostvars(Path(cluster.path), ansible.inventory_list)[host.name]
        with contextlib.suppress(UsageError):  # a vaulted connection, which is Ansible's alone
            return ssh.explained(host, values, failure.text)
    return provision.explain(failure.text or failure.message)
