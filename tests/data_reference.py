"""Second implementations of what ``data`` writes: TFRecord and Example are read, PNG is read and written."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

TABLE = []
for _value in range(256):
    for _ in range(8):
        _value = (_value >> 1) ^ (0x82F63B78 * (_value & 1))
    TABLE.append(_value)


def crc32c(data: bytes) -> int:
    """Byte for byte by one table of 256."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def unmasked(stored: bytes) -> int:
    rotated = (struct.unpack("<I", stored)[0] - 0xA282EAD8) % 2**32
    return (rotated << 15 | rotated >> 17) % 2**32


def records(path: Path) -> list[bytes]:
    """The records of a file, both checksums of each verified."""
    data, found, place = path.read_bytes(), [], 0
    while place < len(data):
        head = data[place : place + 8]
        (length,) = struct.unpack("<Q", head)
        assert unmasked(data[place + 8 : place + 12]) == crc32c(head)
        record = data[place + 12 : place + 12 + length]
        assert unmasked(data[place + 12 + length : place + 16 + length]) == crc32c(record)
        found.append(record)
        place += 16 + length
    return found


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while place < len(message):
        number, wire = divmod(varint(), 8)
        if wire == 0:
            yield number, varint()
        else:
            assert wire == 2
            length = varint()
            yield number, message[place : place + length]
            place += length


def example(record: bytes) -> dict[str, list[bytes] | list[float] | list[int]]:
    """Name to values of a tf.train.Example."""
    ((_, features),) = _fields(record)
    assert isinstance(features, bytes)
    found: dict[str, list[bytes] | list[float] | list[int]] = {}
    for _, entry in _fields(features):
        assert isinstance(entry, bytes)
        name, feature = (value for _, value in _fields(entry))
        assert isinstance(name, bytes)
        assert isinstance(feature, bytes)
        ((kind, body),) = _fields(feature)
        assert isinstance(body, bytes)
        found[name.decode()] = _values(kind, [value for _, value in _fields(body)])
    return found


def _values(kind: int, parts: list[int | bytes]) -> list[bytes] | list[float] | list[int]:
    blobs = [part for part in parts if isinstance(part, bytes)]
    if kind == 1:
        return blobs
    packed = b"".join(blobs)
    if kind == 2:
        return [value for (value,) in struct.iter_unpack("<f", packed)]
    return _integers(packed)


def _integers(packed: bytes) -> list[int]:
    values, value, shift = [], 0, 0
    for byte in packed:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            values.append(value)
            value = shift = 0
    return values


# --- PNG -----------------------------------------------------------------------------------


def png(rows: list[bytes], filters: list[int]) -> bytes:
    """A gray PNG, row y filtered with ``filters[y % len]``, as the standard defines them forward."""
    width, raw, above = len(rows[0]), b"", bytes(len(rows[0]))
    for y, row in enumerate(rows):
        kind = filters[y % len(filters)]
        raw += bytes([kind]) + bytes(
            (row[x] - _guess(kind, row[x - 1] if x else 0, above[x], above[x - 1] if x else 0)) % 256
            for x in range(width)
        )
        above = row
    return _container(width, len(rows), raw)


def _container(width: int, height: int, raw: bytes, depth: int = 8) -> bytes:
    packed = zlib.compress(raw)
    half = len(packed) // 2  # two IDAT chunks, which decoders must join
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, depth, 0, 0, 0, 0)),
        *((b"IDAT", packed[:half]), (b"IDAT", packed[half:]), (b"IEND", b"")),
    ]
    chunks = (struct.pack(">I", len(b)) + n + b + struct.pack(">I", zlib.crc32(n + b)) for n, b in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _guess(kind: int, left: int, up: int, corner: int) -> int:
    nearest = min((left, up, corner), key=lambda each: abs(left + up - corner - each))  # ties: first wins
    return (0, left, up, (left + up) // 2, nearest)[kind]


def pixels(data: bytes) -> list[bytes]:
    """The rows of a gray PNG that uses no filter."""
    assert data[:16] == b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
    width, height, *form = struct.unpack(">IIBBBBB", data[16:29])
    assert form == [8, 0, 0, 0, 0]
    start = data.index(b"IDAT")
    (length,) = struct.unpack(">I", data[start - 4 : start])
    raw = zlib.decompress(data[start + 4 : start + 4 + length])
    assert raw[:: width + 1] == bytes(height)
    return [raw[y * (width + 1) + 1 : (y + 1) * (width + 1)] for y in range(height)]
