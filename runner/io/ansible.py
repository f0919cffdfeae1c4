"""The one place that starts Ansible, through ansible-runner.

Each call gets a private folder of mode 0700 that is gone afterwards; what is worth keeping, Ansible's
own output, is copied to ``log``. Data never comes back through events, only files do; events tell which
host failed at which task. Signals stay with the caller: it says through ``cancelled`` when to give up.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from runner.errors import HostError, UsageError
from runner.io import events, inventory_folder, private, vault, yamlfile
from runner.io.events import Change, Failure, Watch
from runner.io.files import ROOT, write_bytes

TETHER = """\
#!/bin/sh
setpriv --pdeathsig TERM true >/dev/null 2>&1 && exec setpriv --pdeathsig TERM {0} "$@"
exec {0} "$@"
"""
SOCKET_BYTES = 107 - len("/mitogen_unix_12345678.sock")  # of a path, the most that sun_path of unix(7) leaves
CANCEL_LOOK_S = 0.3  # how often a running playbook asks whether it is cancelled


@dataclass(frozen=True, slots=True)
class Outcome:
    """``status`` as ansible-runner names it: successful, failed, canceled, timeout.

    ``ignored`` are failures that the playbook passes over; ``notes`` are host and text of what roles tell
    with debug; ``recap`` has per host ``ok changed unreachable failed skipped rescued ignored``.
    """

    status: str
    failures: tuple[Failure, ...]
    changed: Mapping[str, int]
    ignored: tuple[Failure, ...] = ()
    changes: tuple[Change, ...] = ()
    notes: tuple[tuple[str, str], ...] = ()
    recap: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def successful(self) -> bool:
        """Whether every task did on every host what it should."""
        return self.status == "successful"


def playbook(  # noqa: PLR0913 - the options of one command line
    name: str,
    inventory: Path,
    variables: Mapping[str, str],
    *,
    hosts: Sequence[str] = (),
    log: Path | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    check: bool = False,
    tags: Sequence[str] = (),
    watch: Watch | None = None,
    strategy: str = "linear",
) -> Outcome:
    """Run ``playbooks/NAME.yml`` on ``hosts`` of a cluster, on all where none is named.

    ``variables`` are names and paths, never command text. ``check`` changes nothing and gathers the
    differences; ``tags`` are the parts of the playbook to run, all where none is named. ``strategy`` is
    that of the plays that name none, unless the user's ANSIBLE_STRATEGY is another.
    """
    import ansible_runner  # a tenth of a second, which `--help` need not pay

    with private.folder() as own:
        done = ansible_runner.interface.run(
            private_data_dir=str(own),
            project_dir=str(ROOT),
            playbook=str(ROOT / "playbooks" / f"{name}.yml"),
            inventory=str(inventory.resolve()),
            extravars=dict(variables),
            limit=",".join(hosts) or None,
            envvars=_tethered({**_strategy(strategy, own), **_environment(own)}, own),
            settings={"suppress_ansible_output": True, "pexpect_timeout": CANCEL_LOOK_S},
            quiet=True,
            cancel_callback=cancelled,
            event_handler=events.handler(watch) if watch else None,
            cmdline="--check --diff" if check else None,
            tags=",".join(tags) or None,
        )
        happened = list(done.events)
        failures = events.failures(happened)
        stats = done.stats or {}
        if log is not None:
            write_bytes(log, done.stdout.read().encode("utf-8", "replace"))
        if done.status not in ("successful", "canceled") and not failures:
            failures = (Failure("controller", name, done.rc, _last_line(own)),)
    return Outcome(
        done.status,
        failures,
        {host: int(n) for host, n in stats.get("changed", {}).items()},
        ignored=events.failures(happened, ignored=True),
        changes=events.changes(happened),
        notes=events.notes(happened),
        recap=events.recap(stats),
    )


def tags(name: str) -> tuple[str, ...]:
    """The parts of ``playbooks/NAME.yml`` to ask for one by one: the tags of its roles and tasks."""
    path = ROOT / "playbooks" / f"{name}.yml"
    parts = [part for play in yamlfile.read(path) for key in ("roles", "tasks") for part in play.get(key, ())]
    found = [part.get("tags", ()) for part in parts]
    words = [word for tags in found for word in ([tags] if isinstance(tags, str) else tags)]
    return tuple(dict.fromkeys(word for word in words if word not in ("always", "never")))


def refuse_closed_vaults(inventory: Path) -> None:
    """Raise UsageError, which names file and remedy, where a vault in a cluster's folder cannot be opened."""
    vault.refuse_closed(inventory_folder.read(inventory), _environment())


@cache  # a second each time, and one command sees one inventory
def inventory_list(inventory: Path) -> dict[str, Any]:
    """What ``ansible-inventory --list`` makes of a cluster's folder. Raises UsageError with its words."""
    import ansible_runner

    refuse_closed_vaults(inventory)

    with private.folder() as own:
        found, errors = ansible_runner.interface.get_inventory(
            action="list",
            inventories=[str(inventory.resolve())],
            response_format="json",
            private_data_dir=str(own),
            envvars={**_environment(own), "ANSIBLE_LOG_PATH": os.devnull},  # it would log vaulted values
            quiet=True,
        )
    if not isinstance(found, dict):
        raise UsageError(f"{inventory}: Ansible cannot read it: {str(errors or found).strip()}")
    return found


def _environment(own: Path | None = None) -> dict[str, str]:
    """Ansible's programs lie beside this Python, whether or not its environment is activated.

    ansible-runner looks for some of them with its own PATH, hence the change of this process's.
    ``own`` is the private folder; Ansible's temporary files are there too, for a kill leaves them.
    """
    beside, path = os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)
    if path.split(os.pathsep)[0] != beside:
        os.environ["PATH"] = path = os.pathsep.join((beside, path))
    return {
        "PATH": path,
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_NOCOLOR": "1",
        **({"ANSIBLE_LOCAL_TEMP": str(own / "tmp")} if own else {}),
        "ANSIBLE_HOST_KEY_CHECKING": "True",  # ansible-runner turns it off where nobody says so
        **vault.settled(os.environ),
    }


def _strategy(name: str, own: Path) -> dict[str, str]:
    """Of a strategy, or the user's. Mitogen leaves its socket where it is killed: in the private folder then.

    With Ansible's own, what a playbook starts on this machine would outlive the folder.
    """
    name = os.environ.get("ANSIBLE_STRATEGY") or name
    if "mitogen" in name and len(os.fsencode(own)) > SOCKET_BYTES:  # it would wait for a socket for ever
        name = "linear"
    return {"ANSIBLE_STRATEGY": name, **({"TMPDIR": str(own)} if "mitogen" in name else {})}


def _tethered(environment: Mapping[str, str], own: Path) -> dict[str, str]:
    """The environment with an ansible-playbook first on PATH that ends when this process does, be it killed.

    Else it goes on by itself: ansible-runner keeps the end of its terminal from it. Where files in the
    folder cannot be executed, it is passed over on PATH.
    """
    program = own / "bin" / "ansible-playbook"
    program.parent.mkdir()
    program.write_text(TETHER.format(shlex.quote(str(Path(sys.executable).parent / program.name))))
    program.chmod(0o700)
    return {**environment, "PATH": os.pathsep.join((str(program.parent), environment["PATH"]))}


def _last_line(own: Path) -> str:
    for stream in ("stderr", "stdout"):
        for path in sorted(own.glob(f"artifacts/*/{stream}")):
            lines = path.read_text("utf-8", "replace").split("\n")
            said = [line.strip() for line in lines if "ERROR" in line] or [
                line for line in lines if line.strip()
            ]
            if said:
                return said[0]
    raise HostError("Ansible ended without a word; is it installed? pip install -r requirements.txt")
