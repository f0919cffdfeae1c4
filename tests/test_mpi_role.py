"""Role mpi where launchers differ: each host is this machine with a launcher that says what Open MPI says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit import ROOT

PLAY = [
    {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [{"ansible.builtin.import_role": {"name": "mpi", "tasks_from": "verify"}}],
    }
]


def verified(folder: Path, launchers: dict[str, str], **variables: Any) -> str:
    """What Ansible prints; ``launchers`` is path to what it says, a host for each."""
    hosts = {}
    for number, (path, says) in enumerate(launchers.items(), start=1):
        program = folder / path
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\necho '{says}'\n")
        program.chmod(0o755)
        hosts[f"gpu{number}"] = {"ansible_connection": "local", "cluster_mpirun": str(program)}
    common = {"ansible_python_interpreter": sys.executable, **variables}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": common}}))
    (folder / "play.yml").write_text(yaml.safe_dump(PLAY))
    done = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", "-i", folder / "hosts.yml", folder / "play.yml"],
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
            "ANSIBLE_ROLES_PATH": str(ROOT / "roles"),
            "ANSIBLE_STDOUT_CALLBACK": "default",
            "ANSIBLE_NOCOLOR": "1",
            "LC_ALL": "C.UTF-8",
        },
        cwd=folder,
        capture_output=True,
        text=True,
    )
    text = done.stdout + done.stderr
    assert ("failed=0" in text and "failed=1" not in text) == (done.returncode == 0), text
    return text


FOUR, FIVE = "mpirun (Open MPI) 4.1.4", "mpirun (Open MPI) 5.0.7"
DIFFERS = "Open MPI differs between the hosts, 4.1 on gpu1, gpu3; 5.0 on gpu2: "


@pytest.mark.parametrize(
    ("second", "inside", "refused", "expected"),
    [
        pytest.param(FIVE, False, True, DIFFERS + "ranks of different versions cannot talk", id="mixed"),
        pytest.param(FIVE, True, False, DIFFERS + "mpi_inside_image says", id="mixed, in images"),
        pytest.param(FOUR, False, False, "looks for its daemon in the same place", id="places"),
        pytest.param("HYDRA", True, True, "does not answer as Open MPI does", id="another"),
    ],
)
def test_launchers_that_differ(
    tmp_path: Path, second: str, inside: bool, refused: bool, expected: str
) -> None:
    launchers = {"a/mpirun": FOUR, "b/mpirun": second, "c/mpirun": FOUR}
    said = verified(tmp_path, launchers, mpi_inside_image=inside)
    assert expected in " ".join(said.split())
    assert ("failed=1" in said) == refused, said
