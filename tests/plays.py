"""Tasks of roles, run by Ansible for real: on this machine, with files in a folder of the test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from kit import ROOT


def environment() -> dict[str, str]:
    """Of Ansible's programs: those beside this Python, with the settings and roles of the project."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_ROLES_PATH": str(ROOT / "roles"),
        "ANSIBLE_STDOUT_CALLBACK": "default",
        "ANSIBLE_NOCOLOR": "1",
        "LC_ALL": "C.UTF-8",
    }


def play(
    folder: Path, tasks: list[dict[str, Any]], *words: str, fails: bool = False, **variables: Any
) -> str:
    """Run ``tasks`` and return all that Ansible prints; ``variables`` go before those of every role."""
    (folder / "play.yml").write_text(
        yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}])
    )
    known = {"ansible_python_interpreter": sys.executable, **variables}
    (folder / "variables.json").write_text(json.dumps(known))
    argv = [
        "ansible-playbook",
        "-i",
        "localhost,",
        "-c",
        "local",
        "-e",
        "@variables.json",
        "play.yml",
        *words,
    ]
    done = subprocess.run(argv, env=environment(), cwd=folder, capture_output=True, text=True)
    text = done.stdout + done.stderr
    assert (done.returncode != 0) == fails, text
    return text


def role(name: str, tasks: str) -> list[dict[str, Any]]:
    """A part of a role as the tasks of a play."""
    return [{"ansible.builtin.import_role": {"name": name, "tasks_from": tasks}}]
