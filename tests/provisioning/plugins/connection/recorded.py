"""Stands in for hosts that cannot exist on a test machine: nothing is run, what is known of them answers.

What Ansible sends is its own, module and arguments, through its own pipelining; ``standin.py`` answers it
from the facts of the host, which are a file that ``ansible_recorded_host`` names.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

from ansible.plugins.connection import ConnectionBase
from provisioning import standin
from provisioning.host import Host

DOCUMENTATION = """
    name: recorded
    short_description: a host that is a file of facts
    description: [Answers from a file of facts instead of running anything.]
    extends_documentation_fragment: [connection_pipelining]
    options:
      host:
        description: The file of facts.
        vars: [{name: ansible_recorded_host}]
"""


class Connection(ConnectionBase):
    """Answers what it is told to run."""

    transport = "recorded"
    has_pipelining = True

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def exec_command(
        self, cmd: str, in_data: bytes | None = None, sudoable: bool = True
    ) -> tuple[int, bytes, bytes]:
        host = Host.load(Path(self.get_option("host")))
        if in_data:
            answer = standin.answer(host, *_sent(in_data.decode()))
            return int(bool(answer.get("failed"))), json.dumps(answer).encode(), b""
        done = standin.shell(host, cmd)
        return (
            int(done.get("rc", 0)),
            str(done.get("stdout", "")).encode(),
            str(done.get("stderr", "")).encode(),
        )

    def put_file(self, in_path: str, out_path: str) -> None:
        raise NotImplementedError(f"{in_path}: nothing is sent in --check")

    def fetch_file(self, in_path: str, out_path: str) -> None:
        raise NotImplementedError(f"{in_path}: nothing is fetched in --check")

    def close(self) -> None:
        self._connected = False


def _sent(text: str) -> tuple[str, dict[str, Any]]:
    """Return the module and the arguments in what Ansible sends; each is a line of its wrapper."""
    words = dict(re.findall(r"^(module_fqn|params)=(.*),$", text, re.MULTILINE))
    module = str(ast.literal_eval(words["module_fqn"])).rpartition(".")[2]
    return module, json.loads(ast.literal_eval(words["params"]))["ANSIBLE_MODULE_ARGS"]
