"""Where the bytes of a log come from: a file or a part of an archive, opened so that nothing can happen.

Nothing is ever written: what is packed is unpacked while it is read (see ``packing``).
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from contextlib import AbstractContextManager
from io import BufferedReader, FileIO, RawIOBase
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from runner.errors import UsageError
from runner.io.packing import Budget, Readable, unpacked
from runner.io.regular import opened
from runner.names import printable

CHUNK = 1 << 18  # bytes read at a time
HEAD = 512  # bytes that tell an archive from a log

_ZIP = (b"PK\x03\x04", b"PK\x05\x06")  # the second of an empty one


class Opened(Protocol):
    """A log that is being read: its bytes, unpacked. ``sha256`` is known when they have ended.

    ``sha256`` is of the bytes as they lie there: of a file as it is on the disk, packed or not; of a member
    of an archive as it would be there once the archive is unpacked. Reading raises UsageError.
    """

    def read(self, size: int, /) -> bytes: ...

    @property
    def sha256(self) -> str: ...


class Source(Protocol):
    """What a log is read from; may be opened again and again. Opening raises UsageError."""

    def open(self) -> AbstractContextManager[Opened]: ...


class File:
    """A file by its path. Opening it raises UsageError where it is no regular file or cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def size(self) -> int:
        """In bytes; 0 where it cannot be known, as opening it will tell."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def open(self) -> OpenLog:
        """Open it; reading unpacks it."""
        return OpenLog(_AsItIs(regular(self.path)), place(self.path), Budget(place(self.path)))


class Refused:
    """What is not read, and why. Opening it raises that UsageError."""

    def __init__(self, error: UsageError) -> None:
        self.error = error

    def open(self) -> AbstractContextManager[Opened]:
        """Do not open it."""
        raise self.error


class OpenLog:
    """The bytes of ``raw``, unpacked and hashed: see Opened. Closes ``raw`` in the end."""

    def __init__(self, raw: RawIOBase, place: str, budget: Budget) -> None:
        self._place, self._budget = place, budget
        self._hashed = _Hashed(raw)
        self._raw = BufferedReader(self._hashed, CHUNK)
        self._stream: Readable | None = None
        self._head = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._raw.close()

    def read(self, size: int, /) -> bytes:
        """Read on: ``size`` bytes or fewer, none at the end. Raises UsageError."""
        try:
            if self._stream is None:
                self._stream = self._unpacked()
            found, self._head = self._head, b""
            return found or self._stream.read(size)
        except OSError as error:
            raise unreadable(self._place, error) from error

    @property
    def sha256(self) -> str:
        """Of the bytes before they are unpacked, once they have been read to their end."""
        return self._hashed.digest.hexdigest()

    def _unpacked(self) -> Readable:
        stream = unpacked(self._raw, self._place, self._budget)
        if stream is self._raw:
            head = self._raw.peek(HEAD)
        else:
            head = self._head = read_fully(stream, HEAD)
        if archived(head):
            advice = "unpack what it lies in and name the folder"
            raise UsageError(f"{self._place}: an archive within an archive is not opened; {advice}")
        return stream


class _AsItIs(RawIOBase):
    """A file to where it ends when it is opened: one that is written as fast as it is read would not end."""

    def __init__(self, file: FileIO) -> None:
        super().__init__()
        self.file, self.left = file, os.fstat(file.fileno()).st_size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        size = self.file.readinto(memoryview(buffer)[: self.left]) or 0
        self.left -= size
        return size

    def close(self) -> None:
        self.file.close()
        super().close()


class _Hashed(RawIOBase):
    """A file that hashes what is read from it."""

    def __init__(self, file: RawIOBase) -> None:
        super().__init__()
        self.file, self.digest = file, hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        size = self.file.readinto(buffer) or 0
        self.digest.update(memoryview(buffer)[:size])
        return size

    def close(self) -> None:
        self.file.close()
        super().close()


def regular(path: Path) -> FileIO:
    """Open ``path``, if it is a regular file. Raises UsageError."""
    return opened(path, place(path), "name a log, or a folder or archive of logs")


def archived(head: bytes) -> str:
    """The kind of archive that begins with ``head``, 512 bytes: tar, zip, or none."""
    if head.startswith(_ZIP):
        return "zip"
    if head[257:262] == b"ustar":
        return "tar"
    try:  # the oldest form has no mark, but a checksum of these bytes in them
        tarfile.TarInfo.frombuf(head[:HEAD], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return ""
    return "tar"


def read_fully(stream: Readable, size: int) -> bytes:
    """``size`` bytes, or all that there are."""
    found = b""
    while len(found) < size and (more := stream.read(size - len(found))):
        found += more
    return found


def place(path: Path) -> str:
    """Name a path in a message."""
    return printable(str(path))


def unreadable(place: str, error: OSError) -> UsageError:
    """Say that something cannot be read, and why."""
    return UsageError(f"{place}: cannot be read: {error.strerror or error}; name a log file or folder")
