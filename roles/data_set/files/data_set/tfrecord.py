"""TFRecord files and the ``tf.train.Example`` messages in them, written without TensorFlow.

A record is its length (uint64, little endian), the masked CRC32C of these eight bytes, the data, and the
masked CRC32C of the data (tensorflow/core/lib/io/record_writer.h). An Example is a protobuf map from names
to lists of bytes, floats or integers (tensorflow/core/example/feature.proto).
"""

from __future__ import annotations

import os
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Iterable, List, Mapping, Sequence, Tuple

from data_set.files import DataError

_POLYNOMIAL = 0x82F63B78  # CRC32C (Castagnoli), bits reversed
_LARGEST = 1 << 30  # bytes of one record


def _tables() -> Tuple[List[int], List[int]]:
    """What 16 bits of input become after two and after four bytes: a word of 32 bits takes two look-ups."""
    byte = []
    for value in range(256):
        crc = value
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        byte.append(crc)
    near = []
    for value in range(1 << 16):
        crc = byte[value & 0xFF] ^ value >> 8
        near.append(byte[crc & 0xFF] ^ crc >> 8)
    return near, [near[crc & 0xFFFF] ^ crc >> 16 for crc in near]


_NEAR, _FAR = _tables()


def crc32c(data: bytes) -> int:
    """The CRC32C of ``data`` (RFC 3720, appendix B.4)."""
    crc, near, far = 0xFFFFFFFF, _NEAR, _FAR
    whole = len(data) & ~3
    for word in memoryview(data)[:whole].cast("I"):  # hosts with accelerators are little endian
        mixed = word ^ crc
        crc = far[mixed & 0xFFFF] ^ near[mixed >> 16]
    for value in data[whole:]:
        crc ^= value
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    """The masked CRC32C as it stands in a file: rotated right by 15 bits, plus a constant."""
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def write(path: Path, records: Iterable[bytes]) -> None:
    """Write a file of records."""
    with path.open("wb") as stream:
        for record in records:
            length = struct.pack("<Q", len(record))
            for part in (length, masked(length), record, masked(record)):
                stream.write(part)


def count(path: Path) -> int:
    """How many records a file has, by the lengths of all; the data itself is not read.

    Raises DataError where the file ends within a record or a length is damaged.
    """
    found, size = 0, path.stat().st_size
    with path.open("rb", buffering=0) as stream:
        end = 0
        while end < size:
            head = os.pread(stream.fileno(), 12, end)
            if len(head) < 12 or masked(head[:8]) != head[8:]:
                raise DataError(
                    f"{path}: is damaged at byte {end}; remove the file's folder and prepare it again"
                )
            end += 16 + int(struct.unpack("<Q", head[:8])[0])
            found += 1
    if end != size:
        raise DataError(f"{path}: ends within a record; remove the file's folder and prepare it again")
    return found


def count_all(paths: Iterable[Path]) -> int:
    """How many records these files have together."""
    with ThreadPoolExecutor(max_workers=16) as pool:  # each waits for the disk
        return sum(pool.map(count, paths))


# --- tf.train.Example ----------------------------------------------------------------------


def _number(value: int) -> bytes:
    """A varint; negative numbers take ten bytes, as 64 bits in two's complement."""
    value &= (1 << 64) - 1
    done = bytearray()
    while value > 0x7F:
        done.append(value & 0x7F | 0x80)
        value >>= 7
    done.append(value)
    return bytes(done)


def _field(number: int, data: bytes) -> bytes:
    """A field of bytes: text, message or packed list."""
    return _number(number << 3 | 2) + _number(len(data)) + data


def blobs(*values: bytes) -> bytes:
    """A feature that is a list of bytes."""
    return _field(1, b"".join(_field(1, value) for value in values))


def floats(values: Sequence[float]) -> bytes:
    """A feature that is a list of 32-bit floats."""
    return _field(2, _field(1, struct.pack(f"<{len(values)}f", *values)) if values else b"")


def integers(values: Sequence[int]) -> bytes:
    """A feature that is a list of 64-bit integers."""
    return _field(3, _field(1, b"".join(map(_number, values))) if values else b"")


def example(features: Mapping[str, bytes]) -> bytes:
    """The message with these features, sorted by name so that the same input gives the same file."""
    entries = (_field(1, name.encode()) + _field(2, features[name]) for name in sorted(features))
    record = _field(1, b"".join(_field(1, entry) for entry in entries))
    if len(record) > _LARGEST:
        raise DataError("a record would have more than 1 GiB; no image is that large")
    return record
