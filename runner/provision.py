"""What ``provision`` makes of Ansible's words: a failure with its remedy, a difference, a recap."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from runner.names import printable

MOST_LINES = 40  # of one difference; the log has all of it
RECAP = ("ok", "changed", "unreachable", "failed", "skipped", "rescued", "ignored")

MITOGEN = "mitogen_plain"  # of playbooks/strategy_plugins
_SAME_TO_MITOGEN = re.compile(
    r"ansible_(?:host|port|user|connection|(?:ssh_)?private_key_file|ssh_(?:common|extra)_args|"
    r"become(?:_method|_user|_password)?)"
)

_PREFIX = re.compile(
    r"^(?:Task failed: |Action failed: |Failed to connect to the host via ssh: |Module failed: )+"
)
_SENT = re.compile(
    r"fingerprint for the (\S+) key sent by the remote host is\s+(SHA256:[A-Za-z0-9+/]+)", re.ASCII
)
_OFFENDING = re.compile(r"Offending \S+ key in (\S.*):\d+\s*$", re.MULTILINE)

_AGAIN = "then run provision again"
_UNREACHED = (
    "the host does not reach it; state package_sources_proxy (is the stated one right?), or without a way "
    "to the internet package_sources_mirror and vendor_sources_mirror"
)
# The words of apt, dpkg and dnf; what is more special stands first.
_PACKAGES = (
    (
        r"Unsupported proxy configured",
        f"apt knows no such proxy; correct what names it in /etc/apt/apt.conf.d, {_AGAIN}",
    ),
    (
        r"is not known on line \d+ in source|Malformed (?:entry|line|stanza) \d+|"
        r"Unable to parse package file /etc",
        f"correct that file of sources, or remove it, {_AGAIN}",
    ),
    (
        r"NO_PUBKEY|Missing key [0-9A-F]|[Pp]ublic key (?:for \S+ )?is not (?:available|installed)",
        "it is signed by another key than the one that is pinned; mend the mirror, or state the vendor's new "
        "key in fingerprints of vendor_sources_repositories",
    ),
    (
        r"EXPKEYSIG|KEYEXPIRED|[Kk]ey .*expired|because: Expired on",
        "the key that signed it has expired; renew it on the mirror, remove the old one on the host "
        f"(/etc/apt/keyrings/runkit-*.asc), {_AGAIN}",
    ),
    (
        r"SHA1 is not considered secure|weak (?:digest|security|algorithm)",
        "its signature is too weak for this system; take the vendor's repository for this release of it",
    ),
    (
        r"Release file for .* is expired|is expired \(invalid since",
        f"bring the mirror up to date, or set the host's clock right, {_AGAIN}",
    ),
    (r"is not valid yet", f"the host's clock is behind; set it right (timedatectl), {_AGAIN}"),
    (
        r"BADSIG|has been manipulated|is not signed|NODATA|GPG check FAILED|verification error",
        "what is there is not what was signed; mend the mirror or proxy",
    ),
    (  # without a connection apt goes on to miss a Release file
        r"Could not connect to|Unable to connect to|Cannot initiate the connection|Could not resolve '|"
        r"Temporary failure resolving",
        _UNREACHED,
    ),
    (
        r"does not have a Release file|404 +Not Found|Status code: 404",
        "the server has no such repository; a mirror must have it below HOST/PATH (package_sources_mirror, "
        "vendor_sources_mirror)",
    ),
    (
        r"[Cc]ould not get lock|frontend lock|[Ff]ailed to lock apt|waiting for process|locked by another",
        f"another program installs packages there; wait until it is done, {_AGAIN}",
    ),
    (
        r"No space left on device|enough free space|more space needed on|\b28: No space",
        f"make room there (apt-get clean or dnf clean all, old logs), {_AGAIN}",
    ),
    (
        r"dpkg was interrupted|returned an error code|error processing package|fix-broken|half-installed",
        f"a package is half installed; on the host: dpkg --configure -a, or apt-get remove it, {_AGAIN}",
    ),
    (
        r"held broken packages|[Hh]eld packages w\w+ (?:be )?changed|unmet dependencies|conflicting requests",
        "a hold or a pin keeps it from being installed; see apt-mark showhold, apt-cache policy or dnf "
        f"versionlock list, {_AGAIN}",
    ),
    (
        r"No package matching|Unable to locate package|installation candidate|Version '.*' for '.*' was not "
        r"found|No package .* available|Unable to find a match|No match for argument|nothing provides",
        "no source of packages of the host has it; a mirror needs it too (package_sources_mirror, "
        f"vendor_sources_mirror); or state another version, {_AGAIN}",
    ),
    (
        r"\b407\b",
        "the proxy wants a user and password; state them, vaulted, in package_sources_proxy (http://USER:PASSWORD@...)",
    ),
    (
        r"Failed to fetch|Failed to download|Cannot download|"
        r"Could not resolve host:|Could not handshake|certificate verif",
        _UNREACHED,
    ),
)
_IS_IT_ON = "is it on, does sshd run there, and is ansible_host right?"
# Those of ssh, sudo and Ansible.
_LOGIN = (
    (
        r"[Ii]ncorrect (?:sudo|su) password|Sorry, try again",
        "the become password is wrong; correct ansible_become_password",
    ),
    (
        r"[Mm]issing sudo password|a password is required|interactive authentication is required",
        "sudo asks for a password; state ansible_become_password, vaulted, or let the user do without",
    ),
    (
        r"not in the sudoers|may not run sudo|is not allowed to",
        "the user may not use sudo; allow it, or connect as root",
    ),
    (
        r"sudo: (?:command )?not found|sudo: No such file",
        "sudo is missing; install it as root, or connect as root (ansible_user: root)",
    ),
    (
        r"Permission denied \((?:publickey|password|keyboard|gssapi)",
        "see ansible_user, ansible_ssh_private_key_file, and authorized_keys on the host",
    ),
    (r"Could not resolve hostname", "its name is not known here; state its address in ansible_host"),
    (
        r"module interpreter '.*' was not found",
        "install python3 there, or correct ansible_python_interpreter",
    ),
    (
        r"timed out|No route to host|Connection refused|is unreachable|[Cc]onnection (?:closed|reset)|"
        r"onnection to \S+ closed|disconnected from the remote|can be reached over ssh",
        _IS_IT_ON,
    ),
)

_FILES = (
    (
        r"already exists as a (?:file|link|hard)",
        f"a folder must be there; move away what is in its place, {_AGAIN}",
    ),
    (
        r"Read-only file system|Destination \S+ not writable",
        f"it is mounted read-only; see dmesg for why, make it writable (mount -o remount,rw), {_AGAIN}",
    ),
)

_TUNING = (
    (
        r"Unable to switch profile",
        "tuned has no such profile; correct host_tuning_profile: tuned-adm list on the host shows them",
    ),
)

_REMEDIES = (*_PACKAGES, *_TUNING, *_LOGIN, *_FILES)
# Its own words invite a report of an error of its own; some are one, that of a stream that ended meanwhile.
_MITOGEN_LOST = re.compile(r"(?:Channel|Mitogen) was disconnected|'NoneType'(?s:.*)mitogen/service\.py")
# A role tells what the launch host was told, with its remedy: that login is another one.
_KEY_REFUSED = re.compile(
    r"\A(?!ssh from the launch host )(?s:.*)(?:Host key verification failed|HOST IDENTIFICATION HAS CHANGED)"
)
_SOURCE = re.compile(r"\.j2\Z|/roles/")  # stands in a diff of a new file for the place where it would lie
_SECRET = re.compile(r"//[^/@\s]*@")


def strategy(values: Iterable[Mapping[str, Any]]) -> str:
    """Return the strategy for hosts with these variables: Mitogen's where they are reached by ssh and sudo.

    Where one has a variable of connections that is not the same to Mitogen, it is Ansible's own for all.
    """
    plain = all(
        all(_SAME_TO_MITOGEN.fullmatch(name) for name in of if name.startswith("ansible_"))
        and of.get("ansible_connection", "ssh") == "ssh"
        and of.get("ansible_become_method", "sudo") == "sudo"
        for of in values
    )
    return MITOGEN if plain else "linear"


def explain(text: str) -> str:
    """Return one line for what a failed task or an unreachable host said, with its remedy where known.

    A line that names its remedy itself, after a semicolon, gets no other; an address tells no password.
    """
    text = _SECRET.sub("//***@", _PREFIX.sub("", text.strip()))
    lost = f"the connection to it was lost: {_IS_IT_ON}"
    if _MITOGEN_LOST.search(text):
        return lost
    if _KEY_REFUSED.search(text):
        return _host_key(text)
    lines = [printable(line.strip()) for line in text.splitlines() if line.strip()] or [
        "failed without a word"
    ]
    for pattern, remedy in _REMEDIES:
        asks = re.compile(rf"(?:{pattern})(?!.*; )")
        if found := next((line for line in reversed(lines) if asks.search(line)), None):
            return f"{found.rstrip('.')}: {remedy}"
    if "EOF on stream" in text:  # Mitogen's, with what the login said behind it
        return lost
    return lines[0] if len(lines) == 1 else f"{lines[0]} ... {lines[-1]}"


def is_unknown_key(text: str) -> bool:
    """Whether a host was refused because no key of it is known. ssh does not tell the fingerprint then."""
    return "Host key verification failed" in text and not _SENT.search(text)


def _host_key(text: str) -> str:
    if sent := _SENT.search(text):
        file = _OFFENDING.search(text)
        where = printable(file[1]) if file else "known_hosts"
        return (
            f"its host key changed and is refused: the {sent[1]} key that it sends is {sent[2]}, {where} has "
            "another; if the host was set up anew, compare the fingerprint on its console, then remove the "
            "old key from there"
        )
    return (
        "its host key is not known and is refused; compare the fingerprint on its console "
        "(ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub), then ssh to it once by hand"
    )


def recap(counts: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Yield a line per host as Ansible's own recap has it."""
    width = max((len(host) for host in counts), default=0)
    for host, of in counts.items():
        yield f"{host:<{width}} : " + " ".join(f"{word}={of.get(word, 0)}" for word in RECAP)


def differences(changes: Iterable[tuple[str, str, Sequence[Any]]]) -> Iterator[str]:
    """Yield what would change, hosts that agree together. A change is host, what, and Ansible's diffs."""
    hosts: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for host, what, diffs in changes:
        hosts.setdefault((what, tuple(_lines(diffs))), []).append(host)
    for (what, lines), names in hosts.items():
        yield f"{', '.join(sorted(names, key=_by_number))}: {what}"  # they were done in any order
        yield from (f"    {line}" for line in lines[:MOST_LINES])
        if len(lines) > MOST_LINES:
            yield f"    ... {len(lines) - MOST_LINES} more lines"


def _by_number(name: str) -> list[tuple[str, int]]:
    """Sorts lab2 before lab10."""
    return [(word, int(number or 0)) for word, number in re.findall(r"(\D*)(\d*)", name)]


def _lines(diff: Any) -> Iterator[str]:
    """The lines of one of Ansible's diffs: ``prepared`` text, or ``before`` and ``after``, or several."""
    if isinstance(diff, list | tuple):
        for each in diff:
            yield from _lines(each)
    elif isinstance(diff, Mapping) and "prepared" in diff:
        yield from (printable(line) for line in str(diff["prepared"]).splitlines())
    elif isinstance(diff, Mapping):
        before, after = (_text(diff.get(key)) for key in ("before", "after"))
        name = str(diff.get("before_header") or diff.get("after_header") or "")
        body = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1))[2:]
        if body and name and not _SOURCE.search(name):
            yield printable(name)
        yield from (printable(line) for line in body)


def _text(side: Any) -> str:
    if isinstance(side, Mapping):  # a file's attributes
        return "\n".join(f"{key}: {value}" for key, value in sorted(side.items()))
    return "" if side is None else str(side)
