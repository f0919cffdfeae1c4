"""The files of the catalogue: one YAML file per workload, beside it the folder of what goes to the hosts."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner.errors import UsageError
from runner.io import yamlfile
from runner.io.files import ROOT
from runner.io.yamlfile import place
from runner.model import Workload
from runner.names import hint, is_name, shown, valued

LARGEST_FILE = 256 << 20  # bytes; data sets do not travel this way

Build = Callable[[str, Mapping[str, Any], str], Workload]


def names(root: Path = ROOT) -> tuple[str, ...]:
    """List the workloads under ``workloads/``, sorted."""
    return tuple(sorted(path.stem for path in (root / "workloads").glob("*.yml")))


def load(name_or_path: str, build: Build, root: Path = ROOT) -> Workload:
    """Read a workload: a name under ``workloads/``, or the path of a YAML file.

    ``build`` makes the record of (name, document, path): ``catalog.workload`` with the families filled in.
    Raises UsageError, one line that names file and key.
    """
    path = _find(name_or_path, root)
    document = yamlfile.read(path)
    if not isinstance(document, Mapping):
        raise UsageError(f"{place(path)}: must be a mapping, is {valued(document)}; write KEY: VALUE lines")
    workload = build(path.stem, document, place(path))
    _check_files(path, "files", workload.files)
    for index, source in enumerate(workload.sources):
        _check_files(path, f"sources[{index}].patches", source.patches)
    return replace(workload, path=str(path.absolute()))


def staged(workload: Workload) -> tuple[tuple[str, Path], ...]:
    """Pair the name of each file, in the folder ``workload/`` of a run, with where it lies here."""
    folder = Path(workload.path).parent
    return tuple((file, folder / file) for file in workload.files)


def patches(workload: Workload) -> tuple[str, ...]:
    """The patch files of all sources, as paths beside the workload's file."""
    return tuple(patch for source in workload.sources for patch in source.patches)


def _find(name_or_path: str, root: Path) -> Path:
    if is_name(name_or_path):
        named = root / "workloads" / f"{name_or_path}.yml"
        if named.is_file():
            return named
    path = Path(name_or_path)
    if path.suffix in (".yml", ".yaml") and _is_file(path):
        return path
    looked = f"looked in {place(root / 'workloads')} and for a YAML file of that path"
    raise UsageError(f"{shown(name_or_path)}: no such workload; {hint(name_or_path, names(root))}; {looked}")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long, a folder that is not ours to look into
        return False


def _check_files(path: Path, key: str, listed: Iterable[str]) -> None:
    folder = path.parent / path.stem
    for file in listed:
        at = f"{place(path)}: {key}: {shown(file)}"
        first, *others = file.split("/")
        if first != path.stem or not others or not all(map(is_name, others)):
            text = f"must lie in the folder {path.stem}/ beside this file, its name of letters, digits, . _ -"
            raise UsageError(f"{at}: {text}")
        _check_file(folder, path.parent / file, at)


def _check_file(folder: Path, source: Path, at: str) -> None:
    try:
        status = source.lstat()
    except OSError as error:
        raise UsageError(f"{at}: {error.strerror}; looked in {place(folder)}") from error
    if not stat.S_ISREG(status.st_mode) or not source.resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"{at}: must be a regular file in {place(folder)}, not a link")
    if status.st_size > LARGEST_FILE:
        raise UsageError(f"{at}: larger than {LARGEST_FILE >> 20} MiB; data sets do not travel with a run")
