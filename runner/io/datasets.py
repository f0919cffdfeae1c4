"""Data sets on the hosts: the program that prepares them, its verdicts, and the archives it works on.

Archives go to a host once, as one stream each that goes on where it broke off. Ansible's ``copy`` would
write and hash them twice more. Where the host is this machine they are read in place.
"""

from __future__ import annotations

import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner import records
from runner.errors import HostError, UsageError
from runner.io import ansible, inventory, ssh
from runner.io.events import Failure
from runner.io.files import ROOT, read_json
from runner.io.follow import last_line
from runner.model import Cluster, Dataset, Host
from runner.names import valued

PROGRAM = ROOT / "roles" / "data_set" / "files"
START = "import sys\nfrom data_set.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"
STATES = ("ready", "made", "failed", "missing")
BLOCK = 1 << 20
IN_PLACE = (
    "leftImg8bit_trainvaltest.zip",
    "gtFine_trainvaltest.zip",
)  # of the one archive that workloads name


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a set on a host. ``state`` is one of STATES, ``wants`` are archives to send there."""

    host: str
    folder: str
    state: str
    counts: Mapping[str, int]
    detail: str
    wants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Order:
    """What is asked for: sets, where the user keeps archives (None: nowhere), or synthetic ones."""

    cluster: Cluster
    sets: tuple[Dataset, ...]
    source: Path | None
    synthetic: bool
    log: Path
    cancelled: Callable[[], bool]

    @property
    def sizes(self) -> dict[str, int]:
        """The archives in the user's folder that the sets can be made of; bytes by name."""
        names = {each.name for wanted in self.sets for each in wanted.archives} | set(IN_PLACE)
        found = [self.source / name for name in sorted(names)] if self.source else []
        return {path.name: path.stat().st_size for path in found if path.is_file()}

    @property
    def local(self) -> bool:
        """Whether the only host is this machine."""
        return all(host.connection == "local" for host in self.cluster.hosts)


def prepare(order: Order, say: Callable[[str], None]) -> list[Verdict]:
    """Make the sets on all hosts; a verdict per host and set, in their order. ``say`` tells what goes on.

    Raises HostError where nothing can be said of a host, after the others were seen to.
    """
    if not order.local and order.source:
        looked, held = _ask(order, "check")
        wanted = {host: _wanted(looked, host) for host in order.cluster.hosts}
        _send_all(order, wanted, held, say)
        if all(verdict.state in ("ready", "failed") for verdict in looked):
            return looked
    return _ask(order, "make")[0]


def _wanted(verdicts: Sequence[Verdict], host: Host) -> list[str]:
    names = (name for each in verdicts if each.host == host.name for name in each.wants)
    return list(dict.fromkeys(names))


# --- the program ---------------------------------------------------------------------------


def write_program(target: Path, root: Path | str, order: Order) -> None:
    """Write the file that ``playbooks/data.yml`` brings to every host and runs there."""
    import json

    source = str(order.source.resolve()) if order.source else ""
    job = {
        "root": str(root),
        "source": source if order.local else "",
        "named": str(order.source) if order.source else "",
        "sent": {} if order.local else order.sizes,
        "synthetic": order.synthetic,
        "order": str(target.parent.resolve()) if order.local else "",
        "sets": [records.encode(each) for each in order.sets],
    }
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as program:
        program.writestr("__main__.py", START)
        program.writestr("job.json", json.dumps(job))
        for path in sorted((PROGRAM / "data_set").glob("*.py")):
            program.write(path, f"data_set/{path.name}")


def _ask(order: Order, action: str) -> tuple[list[Verdict], dict[str, Mapping[str, int]]]:
    """Run the program on every host: verdicts, and per host the bytes of archives that it has in part."""
    with tempfile.TemporaryDirectory(prefix="runkit-data-") as folder:
        program = Path(folder) / "data.pyz"
        write_program(program, order.cluster.data_root, order)
        variables = {
            "data_set_action": action,
            "data_set_root": order.cluster.data_root,
            "data_set_python": order.cluster.agent_python,
            "data_set_program": str(program),
            "data_set_results": folder,
        }
        outcome = ansible.playbook(
            "data", Path(order.cluster.path), variables, log=order.log, cancelled=order.cancelled
        )
        said = {failure.host: _said(failure, order.cluster) for failure in outcome.failures}
        verdicts: list[Verdict] = []
        held: dict[str, Mapping[str, int]] = {}
        for host in order.cluster.hosts:
            path = Path(folder) / f"{host.name}.json"
            if path.exists():
                found, held[host.name] = _result(host, read_json(path, "runkit/data-result", 1))
                verdicts += found
            else:
                why = said.get(host.name, f"Ansible ended without it: {outcome.status}")
                verdicts += [Verdict(host.name, each.folder, "failed", {}, why) for each in order.sets]
    return verdicts, held


def _said(failure: Failure, cluster: Cluster) -> str:
    """Why a host has no result: the program's own line, or what Ansible could not do."""
    if failure.status != 1 and not failure.unreachable:
        return f"{cluster.data_root}: {failure.task}: {failure.message}"
    return failure.text or failure.message


def _result(host: Host, document: Mapping[str, Any]) -> tuple[list[Verdict], dict[str, int]]:
    """What a host wrote: a row per set, and the bytes that it has of archives in part."""
    try:
        held = {str(name): int(number) for name, number in document["held"].items()}
        found = [
            Verdict(
                host.name,
                str(each["folder"]),
                STATES[STATES.index(each["state"])],
                {str(part): int(number) for part, number in each["counts"].items()},
                str(each["detail"]),
                tuple(map(str, each["wants"])),
            )
            for each in document["sets"]
        ]
        return found, held
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise HostError(f"{host.name}: its result is not one of ours ({error}); run data again") from error


# --- the archives --------------------------------------------------------------------------


def _send_all(
    order: Order,
    wanted: Mapping[Host, Sequence[str]],
    held: Mapping[str, Mapping[str, int]],
    say: Callable[[str], None],
) -> None:
    """Bring each host what it lacks, all at a time. What fails is told; the host then says what it lacks."""

    def send(host: Host) -> None:
        for name in wanted[host]:
            begin = held.get(host.name, {}).get(name, 0)
            say(f"{host.name}: {name}: {'goes on' if begin else 'sending'}")
            try:
                _send(order, host, name, begin)
            except HostError as error:
                say(str(error))
                return

    with ThreadPoolExecutor(max_workers=len(wanted)) as pool:
        list(pool.map(send, wanted))


def _send(order: Order, host: Host, name: str, begin: int) -> None:
    """Append the rest of an archive to what the host has of it; the program there checks and renames it."""
    assert order.source is not None
    values = inventory.hostvars(Path(order.cluster.path), ansible.inventory_list)[host.name]
    part = f"{order.cluster.data_root}/archives/.{name}.part"
    words = ["dd", f"of={part}", "oflag=append", "conv=notrunc", "bs=1M", "iflag=fullblock", "status=none"]
    argv = words if host.connection == "local" else ssh.command(host, values, words, bulk=True)
    with (
        (order.source / name).open("rb") as stream,
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
        ) as sender,
    ):
        assert sender.stdin is not None
        stream.seek(begin)
        try:
            while (block := stream.read(BLOCK)) and not order.cancelled():
                sender.stdin.write(block)
            sender.stdin.close()
        except BrokenPipeError:
            pass  # its own words say why
        status, said = sender.wait(), last_line(errors)
    if status:
        why = ssh.explained(host, values, said or "the connection ended")
        raise HostError(
            f"{host.name}: {name} could not be sent: {why}; run data again, it goes on from there"
        )


def checked_source(text: str) -> Path:
    """The folder that ``--from`` names. Raises UsageError."""
    path = Path(text)
    if not text.strip() or not path.is_dir():
        raise UsageError(f"--from {valued(text)}: no such folder; name the one that holds the archives")
    return path
