"""What known_hosts holds and should hold, as functions from text to text.

A line of ours is ``NAME,ADDRESS TYPE KEY``, NAME being the host's in the inventory; ``[NAME]:PORT`` where
sshd listens on another port than 22.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterator, Mapping

ALGORITHMS = ("ed25519", "ecdsa", "rsa")
Keys = Mapping[str, str]  # type, as in "ssh-ed25519" -> key in base64


def keys(facts: Mapping[str, str]) -> dict[str, str]:
    """Return the host keys among Ansible's facts.

    >>> keys({"ssh_host_key_rsa_public": "AAAA", "ssh_host_key_rsa_public_keytype": "ssh-rsa"})
    {'ssh-rsa': 'AAAA'}
    """
    names = [f"ssh_host_key_{algorithm}_public" for algorithm in ALGORITHMS]
    return {facts[f"{name}_keytype"]: facts[name] for name in names if facts.get(name)}


def fingerprint(key: str) -> str:
    """Return the fingerprint of a key in base64, as ``ssh-keygen -l`` prints it.

    >>> fingerprint("AAAA")
    'SHA256:cJ6AyISHokEeHuTfufIq8KhSS0gxtZRIPQApK6DcxZo'
    """
    try:
        raw = base64.b64decode(key, validate=True)
    except binascii.Error:
        return "not a key"
    return "SHA256:" + base64.b64encode(hashlib.sha256(raw).digest()).decode().rstrip("=")


def differs(text: str, host: str, fresh: Keys) -> str:
    """Say which key of ``host`` is another one than ``text``, a known_hosts file, has; "" where none is."""
    said = [
        f"{kind} was {fingerprint(known)} and is {fingerprint(fresh[kind])}"
        for name, kind, known in _entries(text)
        if name == host and kind in fresh and fresh[kind] != known
    ]
    return "; ".join(said)


def known_hosts(
    text: str, addresses: Mapping[str, str], ports: Mapping[str, int], fresh: Mapping[str, Keys]
) -> str:
    """Return the known_hosts file of a cluster: the ``fresh`` keys, and for other hosts those in ``text``.

    ``addresses`` has all hosts of the cluster; who is not among them is forgotten.
    """
    lines = []
    for host, address in addresses.items():
        old = {kind: key for name, kind, key in _entries(text) if name == host}
        aliases = dict.fromkeys(_alias(each, ports[host]) for each in (host, address))
        lines += [f"{','.join(aliases)} {kind} {key}" for kind, key in (fresh.get(host) or old).items()]
    return "".join(f"{line}\n" for line in lines)


def _alias(name: str, port: int) -> str:
    return name if port == 22 else f"[{name}]:{port}"


def _entries(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield host, type and key of each line."""
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3:
            first = words[0].split(",")[0]
            yield first[1:].partition("]")[0] if first.startswith("[") else first, words[1], words[2]


class FilterModule:
    """How Ansible finds them."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Return the filters by name."""
        return {
            "ssh_trust_keys": keys,
            "ssh_trust_differs": differs,
            "ssh_trust_known_hosts": known_hosts,
        }
