"""What is known of a host that is a file of facts."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

UNSAID = 97  # the status of a command that the facts do not speak of; no test bears it


@dataclass(frozen=True)
class Host:
    """The facts: ``root`` is the folder that stands for /, the rest is as facts.yml has it."""

    root: Path
    ansible_facts: Mapping[str, Any]
    installed: Mapping[str, str]  # package -> version
    unknown: list[str]  # packages that no repository has yet, as patterns
    known: list[str]  # and those of them that one has
    held: list[str]
    module: Mapping[str, str]  # version, license and filename of the kernel's module of the driver
    units: Mapping[str, Mapping[str, bool]]  # unit -> enabled, active
    users: Mapping[str, str]  # user -> line of passwd
    commands: Mapping[str, Any]  # words as a shell has them -> stdout, or a mapping of rc, stdout, stderr
    scripts: Mapping[str, str]  # script of a role -> stdout
    greeting: str  # to the questions that are asked before there is Python

    @classmethod
    def load(cls, path: Path) -> Host:
        known = json.loads(path.read_text())
        return cls(**{**known, "root": Path(known["root"])})

    def has(self, spec: str) -> bool:
        """Whether ``name``, ``name=version`` or ``name-version`` is installed; versions may be patterns."""
        name, _, version = spec.partition("=")
        if name in self.installed:
            return not version or fnmatch.fnmatchcase(self.installed[name], version)
        return any(fnmatch.fnmatchcase(f"{each}-{at}", spec) for each, at in self.installed.items())

    def offers(self, spec: str) -> bool:
        name = spec.partition("=")[0].removeprefix("@")
        lacks, has = (
            any(fnmatch.fnmatchcase(name, each) for each in some) for some in (self.unknown, self.known)
        )
        return has or not lacks or self.has(spec)

    def text(self, path: str) -> str:
        """The text of a file; "" where there is none."""
        at = self.root / path.lstrip("/")
        return at.read_text() if at.exists() else ""
