"""SSH connections of runkit's own, beside Ansible's: made as the inventory says, and never with a question.

Passwords are not supported here: what connects needs a key. Nothing of this is kept with the run.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from runner.errors import UsageError
from runner.io import specs
from runner.model import Host

FAILED = 255  # the exit status of ssh itself; any other is that of the command
# Ours come first, since of two equal options ssh takes the first ...
FIRST = ("-T", "-o", "BatchMode=yes")
# ... and these last: whoever sets them in the inventory knows why.
LAST = (
    *("-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
)
FRESH = ("-o", "ControlMaster=no", "-o", "ControlPath=none")
# The cipher that processors have instructions for, before the default that they have none for.
BULK = ("-o", "Ciphers=^aes128-gcm@openssh.com")
# What no later try will mend.
REFUSALS = ("Host key verification failed", "Permission denied", "Could not resolve hostname")
_PROBE_S = 15
_KEY = re.compile(r"Server host key: (\S+) (\S+)")


def command(
    host: Host, values: Mapping[str, Any], argv: Sequence[str], *, bulk: bool = False, fresh: bool = False
) -> list[str]:
    """The words that run ``argv`` on a host. ``values`` are its variables, as ``ansible-inventory`` has them.

    ``bulk``: much will come through. ``fresh``: by a login of its own, whatever connection is open: that one
    has the limits of before. Raises UsageError where a variable cannot be used here.
    """
    program, *options, end, address = _prefix(host, values)
    options = [*(FRESH if fresh else ()), *options, *(BULK if bulk else ())]
    return [program, *options, end, address, " ".join(map(shlex.quote, argv))]


def home_path(path: str) -> str:
    """A path on a host for ``command``: "~/" falls away, since sshd starts commands at home."""
    return path.removeprefix("~/")


def explained(host: Host, values: Mapping[str, Any], said: str) -> str:
    """What ssh said last; with the fingerprint of the host's key where it was refused for that."""
    if "Host key verification failed" not in said:
        return said
    probe = [*_prefix(host, values, "-v"), "true"]
    try:
        done = subprocess.run(
            probe, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return said
    found = _KEY.search(done.stderr.decode("utf-8", "replace"))
    shows = f"it shows {found[1]} {found[2]}" if found else "its key could not be read"
    return (
        f"its host key is unknown or has changed: {shows}; compare that with the host's own "
        "(ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub there) before you put it into known_hosts"
    )


def _prefix(host: Host, values: Mapping[str, Any], *more: str) -> list[str]:
    words = [_value(host, values, "ansible_ssh_executable") or "ssh", *more, *FIRST]
    for option, names in (
        ("-p", ("ansible_port",)),
        ("-l", ("ansible_user",)),
        ("-i", ("ansible_ssh_private_key_file", "ansible_private_key_file")),
    ):
        value = next((text for name in names if (text := _value(host, values, name))), "")
        words += [option, value] if value else []
    for name in ("ansible_ssh_common_args", "ansible_ssh_extra_args"):
        words += shlex.split(_value(host, values, name))
    for name in ("ansible_password", "ansible_ssh_password"):
        if values.get(name):
            raise UsageError(f"{host.name}: {name}: runkit logs in with a key alone; put one on the host")
    return [*words, *LAST, "--", host.address]


def _value(host: Host, values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    if isinstance(value, Mapping) or specs.is_template(value):
        raise UsageError(
            f"{host.name}: {name}: must be literal for runkit's own ssh, neither template nor vault"
        )
    return "" if value is None else str(value)
