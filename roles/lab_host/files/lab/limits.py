"""The one setting of the machine itself that many hosts need: how often root may watch files (inotify(7)).

Each host's systemd takes some ten of the 128 instances that root has by default; a dozen hosts would leave
none for the machine's own programs. What it was is kept, and put back with the last lab.
"""

from __future__ import annotations

from pathlib import Path

import names

SETTING = Path("/proc/sys/fs/inotify/max_user_instances")
KEPT = names.STATE / ".max_user_instances"  # "was set"
PER_HOST = 16


def allow(hosts: int) -> None:
    """See to it that so many hosts more than what the machine itself may use can run."""
    with names.locked(names.STATE):
        was = int(SETTING.read_text())
        original = int(KEPT.read_text().split()[0]) if _is_ours(was) else was
        wanted = original + hosts * PER_HOST
        if hosts > 4 and was < wanted:  # a handful fits into any machine's default
            KEPT.write_text(f"{original} {wanted}")
            SETTING.write_text(str(wanted))


def restore() -> None:
    """Put back what it was, once no lab is left; a value that somebody else has set since stays."""
    with names.locked(names.STATE):
        if names.known() or not KEPT.exists():
            return
        if _is_ours(int(SETTING.read_text())):
            SETTING.write_text(KEPT.read_text().split()[0])
        KEPT.unlink()


def _is_ours(value: int) -> bool:
    return KEPT.exists() and KEPT.read_text().split()[1:] == [str(value)]
