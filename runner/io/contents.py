"""What lies where in an archive: the headers of tar and the table of contents of zip, read with suspicion.

A name becomes no path. Links, devices, names that lead out of the archive and what is packed unusually are
entries with the reason why they are not read.
"""

from __future__ import annotations

import struct
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Protocol, cast

from runner.errors import UsageError
from runner.io.packing import Readable
from runner.io.sources import read_fully
from runner.names import printable

HEADER_LIMIT = 1 << 16  # bytes of a tar header that holds a long name
DIRECTORY_LIMIT = 8 << 20  # bytes of a zip's table of contents
DEPTH_LIMIT = 32  # folders within folders

_BLOCK = 512
_ABOUT_NEXT = (
    tarfile.XHDTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_ZIP_ENCRYPTED = 0x1
_ZIP_LOCAL = struct.Struct("<4s22xHH")
_ZIP_ERRORS = (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, OSError, struct.error)


@dataclass(frozen=True, slots=True)
class Entry:
    """A member: where its bytes begin in the unpacked archive, how many lie there; ``why`` it is refused.

    Of a zip, ``checksum`` is the CRC-32 of its content, ``deflated`` whether the bytes are packed, and they
    begin behind the header at ``offset``: see zip_data.
    """

    name: str
    offset: int
    size: int
    why: str = ""
    deflated: bool = False
    checksum: int | None = None


class Archive(Protocol):
    """The unpacked bytes of an archive, from any position."""

    place: str

    def at(self, offset: int) -> Readable: ...

    @property
    def size(self) -> int: ...


# --- tar -----------------------------------------------------------------------------------


def tar_entries(archive: Archive) -> Iterator[Entry | None]:
    """Every header of a tar archive in its order, None for what is neither a log nor refused.

    Raises UsageError where a header is damaged.
    """
    offset = 0
    pax: dict[str, str] = {}  # what headers before that of a member say of it
    while (header := read_fully(archive.at(offset), _BLOCK)).strip(b"\0"):
        info = _tar_header(archive, header)
        offset += _BLOCK
        if info.type in _ABOUT_NEXT:
            pax |= _said(archive, info, offset)
            yield None
            offset += _padded(info.size)
        else:
            size = _number(pax.get("size", ""), info.size)
            yield None if info.isdir() else _tar_entry(info, pax, offset, size)
            offset += _padded(size) if info.isreg() or info.type not in tarfile.SUPPORTED_TYPES else 0
            pax = {}


def _said(archive: Archive, info: tarfile.TarInfo, offset: int) -> dict[str, str]:
    """What a header says of the member that follows it."""
    if info.type in (tarfile.XGLTYPE, tarfile.GNUTYPE_LONGLINK):  # comments; where a link leads
        return {}
    if info.size > HEADER_LIMIT:
        raise _damaged(archive, f"a name of {info.size} bytes")
    text = read_fully(archive.at(offset), info.size)
    return {"path": _text(text.rstrip(b"\0"))} if info.type == tarfile.GNUTYPE_LONGNAME else _pax(text)


def _tar_header(archive: Archive, header: bytes) -> tarfile.TarInfo:
    try:
        info = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        raise _damaged(archive, str(error)) from error
    if not 0 <= info.size < 1 << 60:
        raise _damaged(archive, f"a size of {info.size} bytes")
    return info


def _tar_entry(info: tarfile.TarInfo, pax: dict[str, str], offset: int, size: int) -> Entry:
    why = ""
    if info.issym() or info.islnk():
        why = "a link"
    elif info.type == tarfile.GNUTYPE_SPARSE or any(key.startswith("GNU.sparse.") for key in pax):
        why = "a sparse file"
    elif not info.isreg():
        why = "no regular file"
    name, led = _name(pax.get("path", info.name))
    return Entry(name, offset, size, why or led)


def _pax(text: bytes) -> dict[str, str]:
    """The records of a pax header, ``LENGTH KEY=VALUE`` and a line feed each; what is none ends them."""
    found, start = {}, 0
    while (blank := text.find(b" ", start, start + 8)) > 0:
        length = _number(_text(text[start:blank]), 0)
        if length <= blank - start:
            break
        key, _, value = text[blank + 1 : start + length - 1].partition(b"=")
        found[_text(key)] = _text(value)
        start += length
    return found


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else otherwise


def _padded(size: int) -> int:
    return (size + _BLOCK - 1) // _BLOCK * _BLOCK


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


# --- zip -----------------------------------------------------------------------------------


class _Bounded:
    """A file for the ZipFile that reads the table of contents: one that is huge is not taken to memory."""

    def __init__(self, archive: Archive) -> None:
        self._archive, self._offset = archive, 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self._offset = offset + (0, self._offset, self._archive.size)[whence]
        if self._offset < 0:
            raise OSError("it points before its own beginning")
        return self._offset

    def tell(self) -> int:
        return self._offset

    def read(self, size: int = -1) -> bytes:
        if size > DIRECTORY_LIMIT:
            raise ValueError(f"a table of contents of {size} bytes")
        found = read_fully(self._archive.at(self._offset), DIRECTORY_LIMIT if size < 0 else size)
        self._offset += len(found)
        return found


def zip_entries(archive: Archive) -> Iterator[Entry | None]:
    """Every member of a zip archive in the order of its table, None for folders. Raises UsageError."""
    try:
        with zipfile.ZipFile(cast(IO[bytes], _Bounded(archive))) as table:
            infos = table.infolist()
    except _ZIP_ERRORS as error:
        raise _damaged(archive, str(error)) from error
    for info in infos:
        yield None if info.filename.endswith("/") else _zip_entry(info)


def _zip_entry(info: zipfile.ZipInfo) -> Entry:
    why, kind = "", info.external_attr >> 28  # the upper bits of a Unix mode
    if info.flag_bits & _ZIP_ENCRYPTED:
        why = "encrypted"
    elif kind not in (0, 0o10):
        why = "a link" if kind == 0o12 else "no regular file"
    elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        why = f"packed by method {info.compress_type}"
    name, led = _name(info.filename)
    deflated = info.compress_type == zipfile.ZIP_DEFLATED
    return Entry(name, info.header_offset, info.compress_size, why or led, deflated, info.CRC)


def zip_data(archive: Archive, entry: Entry) -> int:
    """Where the bytes of a zip's member begin. Raises UsageError where its header is damaged."""
    inside = 0 <= entry.offset < archive.size
    header = read_fully(archive.at(entry.offset), _ZIP_LOCAL.size) if inside else b""
    if len(header) < _ZIP_LOCAL.size or not header.startswith(b"PK\x03\x04"):
        raise _damaged(archive, f"{entry.name} does not lie where its table says")
    _, name, extra = _ZIP_LOCAL.unpack(header)
    return entry.offset + _ZIP_LOCAL.size + int(name) + int(extra)


# --- both ----------------------------------------------------------------------------------


def _name(name: str) -> tuple[str, str]:
    """A member's name as it is shown, and why it is not read, or ""."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    why = ""
    if name.startswith("/") or ".." in parts:
        why = "a name that leads out of the archive"
    elif len(parts) > DEPTH_LIMIT:
        why = f"more than {DEPTH_LIMIT} levels of folders"
    return printable("/".join(parts))[:1000] or "(no name)", why


def _damaged(archive: Archive, why: str) -> UsageError:
    return UsageError(f"{archive.place}: damaged archive: {printable(why)[:200]}; fetch it again")
