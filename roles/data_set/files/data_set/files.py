"""What all modules share: the one error, safe names, writing through a temporary name."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any, Dict

GIB = 1 << 30
LARGEST_STATE = 4 << 20  # bytes of a state file; ours has some kilobytes
BLOCK = 1 << 20
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}", re.ASCII)


class DataError(Exception):
    """Something a person can act on: one line with what, where and what to do."""


def is_safe(name: str) -> bool:
    """Whether a relative path has nothing but plain names: not absolute, no "..", nothing hidden."""
    return all(map(_PART.fullmatch, name.split("/")))


def shown(text: str) -> str:
    """Text from an archive as it may stand in a message."""
    return ascii(text[:120])


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is whole or not there."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(data)
    os.replace(fresh, path)


def write_json(path: Path, document: Dict[str, Any]) -> None:
    """Write a small document, keys in the order given."""
    write_whole(path, (json.dumps(document, indent=1) + "\n").encode())


def read_json(path: Path) -> Dict[str, Any]:
    """Read a small document; {} where there is none, or nothing that we could have written."""
    try:
        if path.stat().st_size > LARGEST_STATE:
            return {}
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def remove(path: Path) -> None:
    """Remove a file, a link or a whole folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.is_symlink() or path.exists():
        path.unlink()


def explained(error: OSError) -> str:
    """One line for what the system refused."""
    where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{where}the disk is full; free space and run data again, what is done is kept"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{where}{error.strerror}; let the user that runkit connects as write there"
    return f"{where}{error.strerror or error}"
