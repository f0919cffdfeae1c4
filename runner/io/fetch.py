"""Bringing home what a host measured: one stream each, from ``agent.py pack`` into the run's folder.

Not through Ansible's ``fetch``: that reads, hashes and writes it all twice more, and takes twice as long.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.errors import HostError
from runner.io import archive, ssh
from runner.io.follow import last_line


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came home, file to its verified SHA-256; from whom nothing could: host to what is in the way."""

    files: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)


def fetch(argv: Sequence[str], host: str, run: Path, cells: Collection[str]) -> tuple[Mapping[str, str], str]:
    """The files that came, name to SHA-256, and why none could where the host is out of reach ("" elsewhere).

    A host that holds nothing of the run sends nothing. Raises HostError where what it sends cannot be taken.
    """
    trouble, files = None, dict[str, str]()
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        ) as pack,
    ):
        assert pack.stdout is not None
        try:
            files = archive.unpack(pack.stdout, host, run, cells)
        except HostError as error:
            trouble = error
        pack.stdout.close()
        status, said = pack.wait(), last_line(errors)
    if status == ssh.FAILED:
        return {}, said or "the connection ended"
    if status == 2 and said.endswith("No such file or directory"):
        return {}, ""
    if trouble is not None:
        raise HostError(f"{trouble} ({said})" if said else str(trouble))
    return files, ""
