"""PNG files of 8 bits a channel without interlace (ISO/IEC 15948): gray is read, gray and RGB are written."""

from __future__ import annotations

import struct
import zlib
from typing import Iterator, NamedTuple, Tuple

from data_set.files import DataError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_MOST_PIXELS = 1 << 26  # label images have 2**21; what claims more is not read
_GRAY, _RGB = 0, 2


class Gray(NamedTuple):
    """An image: ``pixels`` row by row, one byte each."""

    width: int
    height: int
    pixels: bytes


def read(data: bytes, name: str) -> Gray:
    """Decode a gray image. Raises DataError that calls it ``name`` where it is damaged or of another form."""
    header, packed = b"", b""
    try:
        for kind, body in _chunks(data):
            header = body if kind == b"IHDR" else header
            packed += body if kind == b"IDAT" else b""
        width, height, *form = struct.unpack(">IIBBBBB", header)
        if form != [8, _GRAY, 0, 0, 0] or not 0 < width * height <= _MOST_PIXELS:
            raise DataError(f"{name}: is no PNG of 8-bit gray pixels without interlace; labels must be that")
        size = (width + 1) * height
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(packed, size + 1)
        if len(raw) != size or not unpacker.eof:
            raise ValueError("wrong amount of data")
    except (ValueError, struct.error, zlib.error) as error:
        raise DataError(f"{name}: is a damaged PNG ({error}); get its archive again") from error
    return Gray(width, height, _unfiltered(raw, width, name))


def _chunks(data: bytes) -> Iterator[Tuple[bytes, bytes]]:
    if not data.startswith(SIGNATURE):
        raise ValueError("no PNG signature")
    place, kind = len(SIGNATURE), b""
    while kind != b"IEND":
        (length,) = struct.unpack(">I", data[place : place + 4])
        kind, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        (stated,) = struct.unpack(">I", data[place + 8 + length : place + 12 + length])
        if zlib.crc32(kind + body) != stated:
            raise ValueError("a checksum is wrong")
        yield kind, body
        place += 12 + length


def _unfiltered(raw: bytes, width: int, name: str) -> bytes:
    """Undo the filters of each row (ISO/IEC 15948, 9.2)."""
    done, above = bytearray(), bytes(width)
    for start in range(0, len(raw), width + 1):
        row = bytearray(raw[start + 1 : start + 1 + width])
        kind = raw[start]
        if kind > 4:
            raise DataError(f"{name}: is a damaged PNG (filter {kind}); get its archive again")
        if kind == 2:
            row = bytearray((a + b) & 0xFF for a, b in zip(row, above))
        elif kind:
            _unfilter_row(kind, row, above)
        done += row
        above = bytes(row)
    return bytes(done)


def _unfilter_row(kind: int, row: bytearray, above: bytes) -> None:
    left = corner = 0
    for x, up in enumerate(above):
        if kind == 1:
            guess = left
        elif kind == 3:
            guess = (left + up) >> 1
        else:
            guess = _paeth(left, up, corner)
        left = row[x] = (row[x] + guess) & 0xFF
        corner = up


def _paeth(left: int, up: int, corner: int) -> int:
    toward_left, toward_up, toward_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
    if toward_left <= toward_up and toward_left <= toward_corner:
        return left
    return up if toward_up <= toward_corner else corner


def gray(image: Gray) -> bytes:
    """Encode a gray image."""
    return _written(_GRAY, image.width, image.height, image.pixels)


def rgb(width: int, height: int, pixels: bytes) -> bytes:
    """Encode an image of three bytes per pixel."""
    return _written(_RGB, width, height, pixels)


def _written(kind: int, width: int, height: int, pixels: bytes) -> bytes:
    row = len(pixels) // height
    raw = b"".join(b"\0" + pixels[y * row : (y + 1) * row] for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(raw, 6)), (b"IEND", b""))
    return SIGNATURE + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in parts
    )
