"""Runs playbooks/provision.yml, as it is, with --check against hosts that are files of facts.

The connection plugin ``recorded`` stands in for the hosts. What every task would have done to a host is
rendered as the text of a golden file, golden/HOST.yml.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from provisioning import facts
from provisioning.said import WRITES, Facts, Said, after, would

HERE = facts.HERE
ROOT = HERE.parents[1]
# Tags of roles that do the same on every system; the tests of the lab have them on real hosts.
ELSEWHERE = "host_names,host_limits,ssh_trust"
# What a module is told about how, and not what.
MANNER = ("lock_timeout", "quiet", "stdin", "_uses_shell")


def rehearse(hosts: Mapping[str, Facts], folder: Path, *words: str) -> dict[str, Said]:
    """Run the playbook against ``hosts``; ``folder`` is empty and takes all that is made.

    ``words`` are options of Ansible; without any, roles that do the same on every system are left out.
    """
    inventory = {"all": {"hosts": {name: facts.build(name, known, folder) for name, known in hosts.items()}}}
    (folder / "hosts.yml").write_text(yaml.safe_dump(inventory))
    options = ["--check", "--diff", "-i", str(folder / "hosts.yml"), *(words or ("--skip-tags", ELSEWHERE))]
    done = subprocess.run(
        ["ansible-playbook", *options, "playbooks/provision.yml"],
        cwd=ROOT,
        env={**os.environ, **_environment(folder)},
        capture_output=True,
        text=True,
    )
    (folder / "output.txt").write_text(done.stdout + done.stderr)
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    return {name: Said(tuple(each for each in events if each["host"] == name)) for name in hosts}


def _environment(folder: Path) -> dict[str, str]:
    return {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(HERE.parent),
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_CONNECTION_PLUGINS": str(HERE / "plugins" / "connection"),
        "ANSIBLE_CALLBACK_PLUGINS": str(HERE / "plugins" / "callback"),
        "ANSIBLE_CALLBACKS_ENABLED": "recorded",
        "ANSIBLE_LOCAL_TEMP": str(folder / "local"),
        "ANSIBLE_NO_TARGET_SYSLOG": "1",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_FORKS": "4",
        "PYTHONHASHSEED": "0",
        "RECORDED_EVENTS": str(folder / "events.jsonl"),
        "LC_ALL": "C.UTF-8",
    }


# --- golden files -----------------------------------------------------------------------------


def golden(said: Said) -> str:
    """What a host was told to do, as the text of its golden file."""
    entries = [entry for each in said.events if (entry := _entry(each))]
    return yaml.dump(entries, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def _entry(event: Facts) -> Facts | None:
    where = f"{event['role']}: {event['task'].removeprefix(event['role'] + ' : ')}"
    if event.get("refused"):
        return {"refused": f"{event['role']}: {event.get('msg')}"}
    if event["action"] == "debug" and event.get("msg"):
        return {"note": f"{event['role']}: {event['msg']}"}
    return {"task": where, event["action"]: _arguments(event)} if would(event) else None


def _arguments(event: Facts) -> Any:
    """What a module was told, without what is Ansible's own; of a file its path and the text after."""
    given = {key: value for key, value in event["args"].items() if not key.startswith("_ansible_")}
    told = {key: value for key, value in given.items() if key not in MANNER and value not in (None, "")}
    if event["action"] == "command":
        return told.get("argv") or told
    if event["action"] in WRITES and "content" not in told:
        return {**{key: told[key] for key in ("path", "dest") if key in told}, "after": after(event)}
    return told


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    clean = re.sub(r"[ \t]+\n", "\n", value)
    style = "|" if "\n" in clean else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", clean, style=style)


_Dumper.add_representer(str, _text)
