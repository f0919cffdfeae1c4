"""Mitogen's ``linear``. What Ansible leaves to ssh and to the kernel is left to them: docs/decisions/0009."""

from __future__ import annotations

import ctypes
import signal

import mitogen.ssh
from ansible_mitogen import affinity

PR_SET_PDEATHSIG = 1  # prctl(2)


class _Placement(affinity.Policy):
    """The kernel places processes. Mitogen keeps all workers to one processor where there are two."""

    def assign_worker(self) -> None:
        """A worker ends with its playbook. By itself it waits for an answer that may never come."""
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


affinity.policy = _Placement()

_boot_command = mitogen.ssh.Connection.get_boot_command


def _as_configured(self: mitogen.ssh.Connection) -> list[str]:
    """Without the option that overrules the user's configuration of ssh, and with no connection but its own.

    By BatchMode, ssh asks nothing. A connection that is shared would be left open, as an old login.
    """
    words: list[str] = _boot_command(self)
    words[1:1] = ["-o", "ControlPath=none"]
    if "StrictHostKeyChecking yes" in words:
        at = words.index("StrictHostKeyChecking yes")
        del words[at - 1 : at + 1]
    return words


mitogen.ssh.Connection.get_boot_command = _as_configured

# Imported last: it takes what stands above as it is then.
from ansible_mitogen.plugins.strategy.mitogen_linear import StrategyModule  # noqa: E402

__all__ = ("StrategyModule",)
