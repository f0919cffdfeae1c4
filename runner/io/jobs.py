"""An MPI job on the hosts, started by ``job.py`` on the launch host and ended with the connection to it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from runner.errors import UsageError
from runner.io import probing, ssh
from runner.io.files import ROOT
from runner.model import Host
from runner.names import printable

FILES = ROOT / "roles" / "doctor_probe" / "files"
BOOT = "import json, sys; exec(json.loads(sys.stdin.readline()))"  # the text of job.py comes as a line
START = b'{"schema": "runkit/job", "version": 1, '
SPARE_S = 15.0  # for the login, and for ending what is late


def ranks() -> str:
    """The text of the program that each rank of the job between hosts runs."""
    return (FILES / "ranks.py").read_text(encoding="utf-8")


def run(
    host: Host,
    values: Mapping[str, Any],
    python: str,
    request: Mapping[str, Any],
    cancelled: Callable[[], bool] = lambda: False,
) -> Mapping[str, Any] | str:
    """Have ``request`` done on the launch host; the document of schema runkit/job, or why there is none.

    Standard input of the remote side stays open as long as somebody waits here.
    """
    lines = (json.dumps((FILES / "job.py").read_text(encoding="utf-8")), json.dumps(request))
    try:
        argv = [sys.executable, "-c", BOOT]
        if host.connection != "local":
            argv = ssh.command(host, values, [python, "-c", BOOT], fresh=True)
        text = "".join(f"{line}\n" for line in lines).encode()
        status, out, said = probing.run_until(
            argv, float(request["deadline_s"]) + SPARE_S, stdin=text, cancelled=cancelled
        )
    except (UsageError, OSError) as error:
        return str(error)
    found = probing.document(out, START)
    if found is not None:
        return found
    last = printable(([line.strip() for line in said.splitlines() if line.strip()] or [""])[-1])
    return last or ("no answer in time" if status is None else f"it ended with status {status} and no answer")
