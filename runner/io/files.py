"""Reading and writing files: versioned JSON, and writes that are whole or not there."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.errors import StorageError, UsageError

ROOT = Path(__file__).resolve().parents[2]  # the checkout: playbooks/, roles/, inventory/, workloads/


def write_bytes(path: Path, data: bytes) -> None:
    """Replace ``path`` in one step, so that a reader sees the old file or the new one, never half of it.

    Raises StorageError where it cannot be written.
    """
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise StorageError(f"{path}: cannot be written: {error.strerror}; {_remedy(error)}") from error


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free space or choose another folder"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "choose a folder that you may write to"
    return "choose another folder"


def write_json(path: Path, schema: str, version: int, body: Mapping[str, Any]) -> None:
    """Write ``body`` with its schema name and version, keys in the order given."""
    document = {"schema": schema, "version": version, **body}
    write_bytes(path, (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode())


def read_json(path: Path, schema: str, version: int) -> dict[str, Any]:
    """Read what ``write_json`` wrote. Raises UsageError on a missing, broken, foreign or later file."""
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file; is this the folder of a run?") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path}: not valid JSON: {error}; fetch or build it again") from error
    if not isinstance(document, dict) or document.get("schema") != schema:
        raise UsageError(f"{path}: schema is not {schema}; is this file one of ours?")
    found = document.get("version")
    if found != version:
        raise UsageError(
            f"{path}: version {found} of {schema}, this runkit reads {version}; use the one that wrote it"
        )
    return document
