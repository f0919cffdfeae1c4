"""Archives as lists of pieces that can be read in any order and by several processes.

An archive is hostile: no member may be a link or a device, or lead out of its folder, and what it unpacks to
is bounded. What is of no use for a set is passed over; a name becomes a path only where ``is_safe`` says so.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import tarfile
import zipfile
import zlib
from functools import lru_cache
from pathlib import Path
from typing import IO, Iterator, List, Mapping, NamedTuple

from data_set.files import BLOCK, DataError, read_json, remove, shown, write_json

IN_ZIP = -1
_LARGEST = 1 << 31  # bytes of a piece that is taken into memory: COCO's annotations have 0.5 GB
_MOST_UNPACKED = 32  # times its size; pictures and weights hardly shrink, COCO's annotations do to a fifth
_SLACK = 16 << 20  # bytes that any archive may have unpacked
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_DAMAGED = (zipfile.BadZipFile, gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError)
_AGAIN = "get it again"
_BOMB = f"unpacks to more than {_MOST_UNPACKED} times its size"


class Piece(NamedTuple):
    """A file in an archive: where its bytes lie, or IN_ZIP. A plain file is a piece of itself."""

    archive: Path
    name: str
    offset: int
    size: int

    def copy(self, target: Path) -> None:
        """Write it to a file. Raises DataError where the archive is cut off or damaged there."""
        with target.open("wb") as out:
            for block in self._blocks():
                out.write(block)

    def read(self) -> bytes:
        """All of it. Raises DataError where the archive is cut off or damaged there."""
        if self.size > _LARGEST:
            raise DataError(f"{self.archive}: {shown(self.name)} has more than 2 GiB; {_AGAIN}")
        return b"".join(self._blocks())

    def _blocks(self) -> Iterator[bytes]:
        left = self.size
        try:
            with _opened(self) as stream:
                while left:
                    block = stream.read(min(left, BLOCK))
                    if not block:
                        raise DataError(f"{self.archive}: is cut off within {shown(self.name)}; {_AGAIN}")
                    yield block
                    left -= len(block)
        except _DAMAGED as error:
            raise DataError(f"{self.archive}: {shown(self.name)} is damaged; {_AGAIN}") from error


def _opened(piece: Piece) -> IO[bytes]:
    if piece.offset == IN_ZIP:
        return _zip(piece.archive, os.getpid()).open(piece.name)
    stream = piece.archive.open("rb")
    stream.seek(piece.offset)
    return stream


@lru_cache(maxsize=4)
def _zip(path: Path, _process: int) -> zipfile.ZipFile:
    """An open archive of this process alone: two processes would share one place in the file."""
    return zipfile.ZipFile(path)


def pieces(path: Path) -> Iterator[Piece]:
    """The regular files of a tar or zip archive, in its order.

    Raises DataError where it is cut off, or has a link, a device or a name that would lead out of its folder.
    """
    try:
        found = _zip_pieces(path) if zipfile.is_zipfile(path) else tar_pieces(path)
        for piece in found:
            if piece.name.startswith("/") or ".." in piece.name.split("/"):
                raise DataError(f"{path}: {shown(piece.name)} leads out of its folder; {_AGAIN}")
            yield piece
    except zipfile.BadZipFile as error:
        raise DataError(f"{path}: is not a whole archive ({error}); {_AGAIN}") from error


def _zip_pieces(path: Path) -> Iterator[Piece]:
    with zipfile.ZipFile(path) as archive:
        if sum(info.file_size for info in archive.infolist()) > _most_unpacked(path):
            raise DataError(f"{path}: {_BOMB}; {_AGAIN}")
        for info in archive.infolist():
            if (info.external_attr >> 28) == 0o12:
                raise DataError(f"{path}: {shown(info.filename)} is a link; {_AGAIN}")
            if info.flag_bits & 1 or info.compress_type not in _METHODS:
                raise DataError(
                    f"{path}: {shown(info.filename)} is encrypted or packed in a rare way; {_AGAIN}"
                )
            if not info.is_dir():
                yield Piece(path, info.filename, IN_ZIP, info.file_size)


def _most_unpacked(path: Path) -> int:
    return path.stat().st_size * _MOST_UNPACKED + _SLACK


def tar_pieces(path: Path, start: int = 0) -> Iterator[Piece]:
    """The regular files of the tar that begins at byte ``start`` of a file."""
    size = path.stat().st_size
    try:
        with path.open("rb") as stream:
            stream.seek(start)
            with tarfile.open(fileobj=stream, mode="r:") as archive:
                for member in archive:
                    if wrong := _wrong(member):
                        raise DataError(f"{path}: {shown(member.name)} {wrong}; {_AGAIN}")
                    if member.isreg() and member.offset_data + member.size <= size:
                        yield Piece(path, _plain(member.name), member.offset_data, member.size)
                end = archive.offset
            # Python takes whatever it cannot read for the end; the real one is a block of zeros.
            stream.seek(end)
            if stream.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                raise DataError(f"{path}: is cut off or damaged at byte {end} of {size}; {_AGAIN}")
    except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        raise DataError(f"{path}: is not a whole tar archive ({error}); {_AGAIN}") from error


def _wrong(member: tarfile.TarInfo) -> str:
    """Why no archive of ours would have it; "" for a file or folder."""
    if member.issym() or member.islnk():
        return "is a link"
    if member.size < 0:
        return "states a size below 0"
    if not (member.isreg() or member.isdir()) or member.issparse():
        return "is neither a plain file nor a folder"
    return ""


def _plain(name: str) -> str:
    return name[2:] if name.startswith("./") else name


def uncompressed(path: Path, folder: Path) -> Path:
    """The archive itself, or a plain copy of one that was compressed with gzip."""
    with path.open("rb") as stream:
        if stream.read(2) != b"\x1f\x8b":
            return path
    plain = folder / f".{path.name}.tar"
    if not plain.exists():
        fresh = plain.with_suffix(".new")
        try:
            with gzip.open(path) as packed, fresh.open("wb") as out:
                left = _most_unpacked(path)
                for block in iter(lambda: packed.read(BLOCK), b""):
                    left -= len(block)
                    if left < 0:
                        raise DataError(f"{path}: {_BOMB}; {_AGAIN}")
                    out.write(block)
        except _DAMAGED as error:
            raise DataError(f"{path}: is cut off or damaged ({error}); {_AGAIN}") from error
        os.replace(fresh, plain)
    return plain


# --- what was sent -------------------------------------------------------------------------


def verify(path: Path, stated: Mapping[str, object], notes: Path) -> str:
    """Check size and checksums of an archive; returns "ALGORITHM:DIGEST", sha256 where none is stated.

    Hashing 138 GiB takes minutes: ``notes`` remembers what was hashed. Raises DataError.
    """
    status = path.stat()
    if stated.get("size") and status.st_size != stated["size"]:
        raise DataError(f"{path}: has {status.st_size} bytes, must have {stated['size']}; {_AGAIN}")
    wanted: List[str] = [name for name in ("md5", "sha256") if stated.get(name)] or ["sha256"]
    known = read_json(notes)
    key = str(path.resolve())
    entry = known.get(key)
    mark = [status.st_size, status.st_mtime_ns]
    if not isinstance(entry, dict) or entry.get("is") != mark or not set(wanted) <= set(entry):
        entry = {"is": mark, **_digests(path, wanted)}
        write_json(notes, {**known, key: entry})
    for name in wanted:
        if stated.get(name) and entry[name] != str(stated[name]).lower():
            raise DataError(f"{path}: its {name} is {entry[name]}, must be {stated[name]}; {_AGAIN}")
    return f"{wanted[0]}:{entry[wanted[0]]}"


def _digests(path: Path, names: List[str]) -> Mapping[str, str]:
    hashes = {name: hashlib.new(name) for name in names}
    with path.open("rb") as stream:
        for block in iter(lambda: stream.read(BLOCK), b""):
            for each in hashes.values():
                each.update(block)
    return {name: each.hexdigest() for name, each in hashes.items()}


def received(folder: Path, name: str, size: int) -> None:
    """Give what arrived in pieces its name, once it has the size that it has on the controller."""
    part = folder / f".{name}.part"
    if not part.exists():
        return
    found = part.stat().st_size
    if found == size:
        os.replace(part, folder / name)
    elif found > size:
        remove(part)
