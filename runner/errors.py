"""The error vocabulary. Library code raises these; ``cli`` alone turns them into a line and a status.

A message is one line: where, what is wrong, what to do.
"""

from __future__ import annotations


class RunkitError(Exception):
    """Something a user can act on. ``status`` is the exit status of the command."""

    status = 1


class UsageError(RunkitError):
    """The command line, an inventory, a workload or any other input cannot be used."""

    status = 2


class UnknownLog(RunkitError):
    """No run was found in a log: no family's grammar fits a line of it."""


class BusyError(RunkitError):
    """Another run holds the cluster."""

    status = 2


class NotReady(RunkitError):
    """Something was found on a host that keeps training from running; nothing was started."""

    status = 2


class HostError(RunkitError):
    """A host could not be reached, or did not do what it was asked to."""


class StorageError(RunkitError):
    """A file could not be written: disk full, no permission."""


class Interrupted(RunkitError):
    """A signal ended the command; ``status`` is 128 + its number."""

    def __init__(self, signum: int, message: str) -> None:
        super().__init__(message)
        self.status = 128 + signum
