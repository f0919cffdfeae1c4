"""Writing the scripts of a plan into a folder, beside the files that they call."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.errors import StorageError, UsageError
from runner.io import workloads
from runner.io.archive import AGENT_FILES
from runner.io.files import write_bytes
from runner.io.yamlfile import place
from runner.model import Workload


def write(folder: Path, files: Mapping[str, str], chosen: Sequence[Workload]) -> None:
    """Write ``files``, name to text, with the shim and the workloads' files and patches beside them.

    Raises UsageError where ``folder`` holds something: no script of an earlier plan may pass for one of this.
    Raises it too where it cannot be written; then nothing stays in it.
    """
    try:
        there = folder.exists()
        if there and not folder.is_dir():
            raise UsageError(f"--scripts {place(folder)}: is a file; name a new folder")
        if there and any(folder.iterdir()):
            raise UsageError(f"--scripts {place(folder)}: there is something already; name a new folder")
    except OSError as error:
        raise UsageError(f"--scripts {place(folder)}: {error.strerror}; name a new folder") from error
    try:
        _write_all(folder, files, chosen)
    except StorageError as error:
        shutil.rmtree(folder, ignore_errors=True)
        if there:
            folder.mkdir(exist_ok=True)
        raise UsageError(f"--scripts {error}") from error


def _write_all(folder: Path, files: Mapping[str, str], chosen: Sequence[Workload]) -> None:
    for name in ("shim.sh", "rsh.sh"):
        _write(folder / name, (AGENT_FILES / name).read_bytes())
    for workload in chosen:
        for name, source in workloads.staged(workload):
            write_bytes(folder / "workload" / name, source.read_bytes())
        for name in workloads.patches(workload):
            write_bytes(folder / "workload" / name, (Path(workload.path).parent / name).read_bytes())
    for name, text in files.items():
        _write(folder / name, text.encode())


def _write(path: Path, content: bytes) -> None:
    write_bytes(path, content)
    if path.suffix == ".sh":
        path.chmod(0o755)
