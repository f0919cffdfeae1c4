"""Archives of logs, tar in any packing and zip: read in place, never extracted (see ``contents``)."""

from __future__ import annotations

import os
import zlib
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import Any

from runner.errors import UsageError
from runner.io.contents import Entry, tar_entries, zip_data, zip_entries
from runner.io.packing import Budget, Readable, unpacked
from runner.io.sources import CHUNK, HEAD, OpenLog, Refused, Source, archived, place, read_fully, regular

MEMBERS_LIMIT = 20_000  # headers of an archive, those of folders included


def members(path: Path) -> list[tuple[str, Source]] | None:
    """The members of an archive, names and what each is read from, in its order; None where it is none.

    Folders and hidden files are left out; a link and the like is a source that is refused. Raises UsageError
    where the archive is damaged or beyond a limit, or is no regular file.
    """
    archive = _Archive(path)
    try:
        entries = archive.entries()
    except OSError as error:
        raise UsageError(f"{archive.place}: cannot be read: {error.strerror or error}") from error
    finally:
        archive.close()
    return None if entries is None else [(entry.name, archive.source(entry)) for entry in entries]


class _Archive:
    """The unpacked bytes of a file, from any position; to go back in a packed one it is begun anew."""

    def __init__(self, path: Path) -> None:
        self.path, self.place = path, place(path)
        self.budget = Budget(self.place)
        self._raw: BufferedReader[Any] | None = None
        self._stream: Readable | None = None
        self._position = 0

    def __reduce__(self) -> tuple[type[_Archive], tuple[Path]]:
        return _Archive, (self.path,)  # another process opens its own

    def at(self, offset: int) -> Readable:
        """The bytes from ``offset`` on."""
        return _From(self, offset)

    def read(self, offset: int, size: int) -> bytes:
        """``size`` bytes or fewer from ``offset`` on, none at the end."""
        raw, stream = self._opened(offset)
        if stream is raw:
            self._position = raw.seek(offset)
        while self._position < offset:
            skipped = stream.read(min(CHUNK, offset - self._position))
            if not skipped:
                return b""
            self._position += len(skipped)
        found = stream.read(size)
        self._position += len(found)
        return found

    def _opened(self, offset: int) -> tuple[BufferedReader[Any], Readable]:
        if self._raw is not None and self._stream is not None:
            if self._stream is self._raw or self._position <= offset:
                return self._raw, self._stream
            self.close()
        self._raw = BufferedReader(regular(self.path), CHUNK)
        self._stream, self._position = unpacked(self._raw, self.place, self.budget), 0
        return self._raw, self._stream

    @property
    def size(self) -> int:
        """Of the file, in bytes."""
        raw, _ = self._opened(0)
        return os.fstat(raw.fileno()).st_size

    def entries(self) -> list[Entry] | None:
        """Every member that is a log or refused; None where this is no archive."""
        kind = archived(read_fully(self.at(0), HEAD))
        if not kind or (kind == "zip" and self._stream is not self._raw):
            return None
        found = []
        for number, entry in enumerate(tar_entries(self) if kind == "tar" else zip_entries(self), 1):
            if number > MEMBERS_LIMIT:
                limit = f"more than {MEMBERS_LIMIT} members"
                raise UsageError(f"{self.place}: {limit}; name an archive that holds only logs")
            if entry is not None and not _hidden(entry.name):
                found.append(entry)
        return found

    def source(self, entry: Entry) -> Source:
        """What a member is read from."""
        where = f"{self.place}: {entry.name}"
        if entry.why:
            return Refused(UsageError(f"{where}: {entry.why}; only regular files of an archive are read"))
        return _Member(self, entry, where)

    def close(self) -> None:
        """Close the file; reading opens it again."""
        if self._raw is not None:
            self._raw.close()
        self._raw = self._stream = None

    __del__ = close

    def pause(self) -> None:
        """Close the file, unless it is one where the next member is reached at less cost from here."""
        if self._stream is self._raw:
            self.close()


def _hidden(name: str) -> bool:
    return any(part.startswith(".") and part != ".." for part in name.split("/"))


class _From:
    def __init__(self, archive: _Archive, offset: int) -> None:
        self._archive, self._offset = archive, offset

    def read(self, size: int, /) -> bytes:
        found = self._archive.read(self._offset, size)
        self._offset += len(found)
        return found


# --- members -------------------------------------------------------------------------------


class _Member:
    """A Source: a member of an archive."""

    def __init__(self, archive: _Archive, entry: Entry, where: str) -> None:
        self._archive, self._entry, self._where = archive, entry, where

    def open(self) -> OpenLog:
        stored = _Stored(self._archive, self._entry, self._where)
        return OpenLog(stored, self._where, self._archive.budget)


class _Stored(RawIOBase):
    """The bytes of a member as they would lie on the disk once the archive is unpacked."""

    def __init__(self, archive: _Archive, entry: Entry, where: str) -> None:
        super().__init__()
        self._archive, self._where, self._wanted = archive, where, entry.checksum
        self._stream = archive.at(entry.offset if self._wanted is None else zip_data(archive, entry))
        self._left, self._checksum = entry.size, 0
        self._inflate = zlib.decompressobj(-zlib.MAX_WBITS) if entry.deflated else None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        found = self._inflated(len(buffer)) if self._inflate else self._packed(len(buffer))
        buffer[: len(found)] = found
        self._checksum = zlib.crc32(found, self._checksum)
        if not found and self._wanted not in (None, self._checksum):
            raise self._damaged("its checksum differs")
        return len(found)

    def close(self) -> None:
        if not self.closed:
            self._archive.pause()
        super().close()

    def _packed(self, size: int) -> bytes:
        found = self._stream.read(min(size, self._left)) if self._left else b""
        if self._left and not found:
            raise self._damaged("it ends too early")
        self._left -= len(found)
        return found

    def _inflated(self, size: int) -> bytes:
        assert self._inflate is not None
        found = b""
        try:
            while not found and not self._inflate.eof:
                data = self._inflate.unconsumed_tail or self._packed(1 << 15)
                found = self._inflate.decompress(data, size)
                if not data and not found:
                    raise self._damaged("it ends too early")
        except zlib.error as error:
            raise self._damaged(str(error)) from error
        self._archive.budget.spend(len(found))
        return found

    def _damaged(self, why: str) -> UsageError:
        return UsageError(f"{self._where}: damaged: {why}; fetch the archive again")
