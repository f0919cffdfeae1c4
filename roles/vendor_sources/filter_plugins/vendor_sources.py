"""Keys, source files and addresses of a vendor's repository, as functions from value to value.

The keys are OpenPGP's (RFC 4880, RFC 9580). Of a file only what is read here is put in place: no other reader
can find another key in it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Iterator

MOST_BYTES = 1 << 20
PUBLIC_KEY, SIGNATURE, USER_ID, USER_ATTRIBUTE, SUBKEY = 6, 2, 13, 17, 14
KEPT = (PUBLIC_KEY, SIGNATURE, USER_ID, USER_ATTRIBUTE, SUBKEY)
DROPPED = (10, 12, 21)  # marker, trust, padding: they say nothing
_BLOCK = re.compile(
    rb"^-----BEGIN PGP PUBLIC KEY BLOCK-----[ \t]*\n(.*?)^-----END PGP PUBLIC KEY BLOCK-----", re.M | re.S
)
_SECRET = re.compile(r"//[^/@\s]*@")


class _Damaged(ValueError):
    """What is wrong with the file, for a person."""


def key(content: str) -> dict[str, object]:
    """Read a file of public keys, armored or binary, itself in base64 as ``slurp`` has it.

    ``fingerprints`` are those of its primary keys, in upper case; ``armored`` is the file to put in place;
    ``error`` says why it is none, with the others empty.
    """
    try:
        packets = list(_packets(_binary(base64.b64decode(content))))
        prints = [fingerprint(body) for tag, body in packets if tag == PUBLIC_KEY]
        if not prints or packets[0][0] != PUBLIC_KEY:
            raise _Damaged("it holds no public key")
    except (_Damaged, binascii.Error) as error:
        return {"fingerprints": [], "armored": "", "error": str(error)}
    return {"fingerprints": sorted(set(prints)), "armored": _armored(packets), "error": ""}


def fingerprint(body: bytes) -> str:
    """Return the fingerprint of a public key packet (RFC 9580 section 5.5.4; of version 5, LibrePGP's).

    >>> fingerprint(bytes([4, 0, 0, 0, 0, 1]))
    'BCC1653DA4E4393ADE89C8208E6D399CC45DFE81'
    """
    version = body[0] if body else 0
    if version == 4 and len(body) < 1 << 16:
        return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()  # noqa: S324 - by definition
    if version in (5, 6):
        mark = b"\x9a" if version == 5 else b"\x9b"
        return hashlib.sha256(mark + len(body).to_bytes(4, "big") + body).hexdigest().upper()
    raise _Damaged(f"it holds a key of version {version}, which is not supported")


def _binary(raw: bytes) -> bytes:
    """The packets of a file; of an armored one those of all its blocks."""
    if len(raw) >= MOST_BYTES:
        raise _Damaged("it is too long for a key")
    if b"-----BEGIN PGP" not in raw:
        return raw
    blocks = _BLOCK.findall(raw.replace(b"\r\n", b"\n"))
    if len(blocks) != raw.count(b"-----BEGIN PGP"):
        raise _Damaged("it holds something else than public keys")
    return b"".join(_dearmored(block) for block in blocks)


def _dearmored(block: bytes) -> bytes:
    """Headers end with an empty line; a line that begins with = is the checksum, which signs nothing."""
    head, empty, body = block.partition(b"\n\n")
    if block.startswith(b"\n"):
        body = block
    elif not empty or not all(b":" in line for line in head.splitlines()):
        raise _Damaged("its armor is damaged")
    lines = [line.strip() for line in body.splitlines()]
    return base64.b64decode(b"".join(line for line in lines if not line.startswith(b"=")), validate=True)


def _packets(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and body of each packet; of lengths only those that a key has."""
    at = 0
    while at < len(raw):
        first = raw[at]
        if not first & 0x80:
            raise _Damaged("it is no OpenPGP file")
        tag, at, length = _new(raw, at) if first & 0x40 else _old(raw, at)
        if at + length > len(raw):
            raise _Damaged("it ends too early")
        if tag in KEPT:
            yield tag, raw[at : at + length]
        elif tag not in DROPPED:
            raise _Damaged("it holds something else than public keys")
        at += length


def _new(raw: bytes, at: int) -> tuple[int, int, int]:
    tag, first = raw[at] & 0x3F, _number(raw, at + 1, 1)
    if first < 192:
        return tag, at + 2, first
    if first < 224:
        return tag, at + 3, ((first - 192) << 8) + _number(raw, at + 2, 1) + 192
    if first == 255:
        return tag, at + 6, _number(raw, at + 2, 4)
    raise _Damaged("its packets have no length")


def _old(raw: bytes, at: int) -> tuple[int, int, int]:
    size = {0: 1, 1: 2, 2: 4}.get(raw[at] & 3)
    if size is None:
        raise _Damaged("its packets have no length")
    return raw[at] >> 2 & 0xF, at + 1 + size, _number(raw, at + 1, size)


def _number(raw: bytes, at: int, size: int) -> int:
    if at + size > len(raw):
        raise _Damaged("it ends too early")
    return int.from_bytes(raw[at : at + size], "big")


def _armored(packets: list[tuple[int, bytes]]) -> str:
    """One block. Old headers where they can be, for every reader of keys knows them."""
    raw = b"".join(bytes([0x82 | tag << 2]) + len(body).to_bytes(4, "big") + body
                   if tag < 16 else bytes([0xC0 | tag, 255]) + len(body).to_bytes(4, "big") + body
                   for tag, body in packets)  # fmt: skip
    text = base64.b64encode(raw).decode()
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    check = base64.b64encode(_crc24(raw).to_bytes(3, "big")).decode()
    return f"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n{lines}\n={check}\n-----END PGP PUBLIC KEY BLOCK-----\n"


def _crc24(raw: bytes) -> int:
    """RFC 9580 section 6.1.1."""
    crc = 0xB704CE
    for byte in raw:
        crc ^= byte << 16
        for _ in range(8):
            crc = crc << 1 ^ (0x1864CFB if crc & 0x800000 else 0)
    return crc & 0xFFFFFF


def through(url: str, mirror: str) -> str:
    """Return where a mirror has what is at ``url``.

    >>> through("https://a.example/b/", "http://mirror.example/all/")
    'http://mirror.example/all/a.example/b/'
    """
    return f"{mirror.rstrip('/')}/{url.partition('://')[2]}" if mirror else url


def list_of(url: str) -> str:
    """Return how apt calls what it keeps of the repository at ``url``, as a pattern of file names.

    >>> list_of("http://me:secret@mirror.example:80/a_b/")
    'mirror.example:80_a%5fb_*Release'
    """
    place = _SECRET.sub("//", url).partition("://")[2]
    quoted = re.sub(r'[\\|{}\[\]<>"^~_=!@#$%&*]', lambda found: f"%{ord(found[0]):02x}", place)
    return quoted.rstrip("/").replace("/", "_") + "_*Release"


def without(text: str, address: str) -> str:
    """Return a file of package sources without what matches the pattern ``address``.

    Of a one-line .list the lines, of .sources the paragraphs, of .repo the sections. Comments stay.
    """
    if re.search(r"^\s*\[.+\]\s*$", text, re.M) and not re.search(r"^\s*deb", text, re.M):
        parts = re.split(r"(?m)^(?=[ \t]*\[)", text)
    elif re.search(r"^Types:", text, re.M | re.I):
        parts = re.split(r"(?m)(?<=\n)(?=\s*\n)", text)
    else:
        parts = text.splitlines(keepends=True)
    return "".join(part for part in parts if not re.search(rf"(?m)^(?!\s*#).*{address}", part))


def masked(text: str) -> str:
    """Return text whose addresses tell no password.

    >>> masked("http://me:secret@proxy.example:3128 refuses")
    'http://***@proxy.example:3128 refuses'
    """
    return _SECRET.sub("//***@", text)


class FilterModule:
    """How Ansible finds them."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Return the filters by name."""
        return {
            "vendor_sources_key": key,
            "vendor_sources_through": through,
            "vendor_sources_without": without,
            "vendor_sources_list": list_of,
            "vendor_sources_masked": masked,
        }
