"""What the tasks of a rehearsal said of one host."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Facts = Mapping[str, Any]
PACKAGES = ("apt", "dnf", "package")
WRITES = ("blockinfile", "copy", "lineinfile", "replace", "template")
UNITS = ("service", "systemd", "systemd_service")


@dataclass(frozen=True)
class Said:
    """In order, as the callback plugin ``recorded`` writes it down."""

    events: tuple[Facts, ...]

    @property
    def failures(self) -> list[str]:
        return [f"{each['role']}: {each.get('msg')}" for each in self.events if each.get("refused")]

    @property
    def notes(self) -> list[str]:
        return [str(each["msg"]) for each in self.events if each["action"] == "debug" and each.get("msg")]

    @property
    def changes(self) -> list[Facts]:
        return [each for each in self.events if would(each)]

    @property
    def packages(self) -> list[str]:
        """Every package that was asked for, as it was asked for."""
        asked = [each for each in self.events if each["action"] in PACKAGES and not each.get("skipped")]
        return [name for each in asked if each["args"].get("state") != "absent" for name in names_of(each)]

    @property
    def files(self) -> dict[str, str]:
        """Path -> text of every file that would be written."""
        written: dict[str, str] = {}
        for each in self.changes:
            if each["action"] in WRITES:
                path = str(each["args"].get("dest") or each["args"].get("path"))
                written[path] = _written(each, written.get(path, ""))
        return written

    @property
    def commands(self) -> list[str]:
        ran = [each["args"] for each in self.changes if each["action"] == "command"]
        return [" ".join(map(str, each.get("argv") or [each.get("cmd")])) for each in ran]


def would(event: Facts) -> bool:
    """Whether a task would change the host, as far as --check can tell."""
    skipped_command = event.get("skipped") and "would have run" in str(event.get("msg"))
    return bool(event.get("changed") or skipped_command)


def names_of(event: Facts) -> list[str]:
    """The packages that a task asks for."""
    names = event["args"].get("name") or event["args"].get("pkg") or []
    return [names] if isinstance(names, str) else list(names)


def after(event: Facts) -> str:
    """The text of a file after a task, as its difference has it."""
    diff = event.get("diff") or []
    sides: Sequence[Any] = diff if isinstance(diff, list) else [diff]
    return "".join(str(each.get("after", "")) for each in sides if isinstance(each, dict))


def _written(event: Facts, before: str) -> str:
    """The text of a file after a task; ``before`` is what earlier tasks wrote, of which it does not know."""
    if event["action"] != "lineinfile":
        return str(event["args"].get("content") or after(event))
    replaced = str(event["args"].get("regexp") or "$.")
    kept = [line for line in before.splitlines() if not re.search(replaced, line)]
    return "".join(f"{line}\n" for line in dict.fromkeys([*kept, *after(event).splitlines()]))
