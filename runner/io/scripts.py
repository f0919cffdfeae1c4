"""Writing the scripts of a plan into a folder, beside the files that they call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.errors import UsageError
from runner.io import workloads
from runner.io.archive import AGENT_FILES
from runner.io.files import write_bytes
from runner.io.yamlfile import place
from runner.model import Workload


def write(folder: Path, files: Mapping[str, str], chosen: Sequence[Workload]) -> None:
    """Write ``files``, name to text, with the shim and the workloads' files and patches beside them.

    Raises UsageError where ``folder`` holds something: no script of an earlier plan may pass for one of this.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--scripts {place(folder)}: there is something already; name a new folder")
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
