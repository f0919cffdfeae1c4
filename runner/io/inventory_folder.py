"""The YAML files of one cluster's folder, read strictly, without Ansible.

Ansible passes over in silence what it does not understand: a misspelt variable, a file for a group that
does not exist, the first of two equal keys. Each of these becomes an error here, with its file and line.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.errors import UsageError
from runner.io import yamlfile
from runner.io.yamlfile import Located, Vault, place
from runner.names import hint, is_name, is_word, shown, valued

YAML = (".yml", ".yaml")
VARS = ("group_vars", "host_vars")
SECTIONS = ("hosts", "vars", "children")
IGNORED = (".md", ".txt", ".rst", ".orig", ".bak", ".swp", "~", ".retry")  # as Ansible does
DEPTH = 20  # of groups in groups; more is a loop


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable, where it stands, and whose it is: ``owner`` is a group, or a host where ``of_host``."""

    where: str  # file:line
    owner: str
    of_host: bool
    from_vars: bool  # from group_vars/ or host_vars/, which win over the hosts file
    key: str
    value: Any


@dataclass(slots=True)
class Folder:
    """What the files say: ``hosts`` in their order, ``parents`` of each group, ``groups`` of each host.

    ``depths`` is the distance of each group from ``all``; a deeper group's variables win.
    """

    path: Path
    hosts: list[str] = field(default_factory=list)
    parents: dict[str, set[str]] = field(default_factory=lambda: {"all": set(), "ungrouped": {"all"}})
    groups: dict[str, set[str]] = field(default_factory=dict)
    depths: dict[str, int] = field(default_factory=dict)
    settings: dict[tuple[Any, ...], Setting] = field(default_factory=dict)
    vaults: dict[str, Vault] = field(default_factory=dict)  # by place; what ``values`` lacks

    def values(self, host: str) -> dict[str, Any]:
        """Return the variables of ``host`` by Ansible's precedence, templates as they stand."""
        return {setting.key: setting.value for setting in self._of(host)}

    def whereabouts(self, host: str, key: str) -> str:
        """Return file and line of the setting that holds for ``host``; the folder where none can be read."""
        found = [setting.where for setting in self._of(host) if setting.key == key]
        return found[-1] if found else place(self.path)

    def _of(self, host: str) -> list[Setting]:
        """Return the settings of ``host``, the one that holds last."""
        groups, new = {"all"}, self.groups[host]
        while new:
            groups |= new
            new = {parent for group in new for parent in self.parents[group]} - groups
        mine = [s for s in self.settings.values() if (s.owner == host if s.of_host else s.owner in groups)]
        return sorted(
            mine, key=lambda s: (s.of_host, s.from_vars, 0 if s.of_host else self.depths[s.owner], s.owner)
        )

    def measure_depths(self) -> None:
        """Fill ``depths``. Raises UsageError where a group is its own child."""
        self.depths = dict.fromkeys(self.parents, 0)
        for _ in range(DEPTH):
            before = dict(self.depths)
            for group, parents in self.parents.items():
                self.depths[group] = max((1 + self.depths[parent] for parent in parents), default=0)
            if self.depths == before:
                return
        deepest = max(self.depths, key=self.depths.__getitem__)
        raise UsageError(f"{place(self.path)}: group {deepest}: a child of itself; take one of the two out")


def read(path: Path) -> Folder:
    """Read the folder of a cluster. Raises UsageError, one line that names file, line and key."""
    folder = Folder(path)
    for file in _hosts_files(path):
        _File(folder, file).read_hosts()
    if not folder.hosts:
        raise UsageError(f"{place(path)}: no hosts; name them in hosts.yml under all: hosts:")
    folder.measure_depths()
    for name in VARS:
        of_host = name == "host_vars"
        for owner, file in _vars_files(
            path / name, name[:-5], folder.hosts if of_host else list(folder.parents)
        ):
            document = yamlfile.read(file)
            if isinstance(document, Vault):
                folder.vaults[place(file)] = document
            else:
                _File(folder, file, from_vars=True).settings(document, owner, of_host)
    for setting in folder.settings.values():
        if isinstance(setting.value, Vault):
            folder.vaults[f"{setting.where}: {shown(setting.key)}"] = setting.value
    return folder


def is_hostless(path: Path) -> bool:
    """Whether there is no file that could name hosts."""
    return all(entry.name in VARS for entry in _entries(path))


def _hosts_files(path: Path) -> list[Path]:
    files = [entry for entry in _entries(path) if entry.name not in VARS]
    for file in files:
        if file.is_dir():
            text = f"folders here are {' and '.join(VARS)}; {hint(file.name, VARS)}"
            raise UsageError(f"{place(file)}: unknown folder; {text}")
        if file.suffix not in YAML:
            raise UsageError(f"{place(file)}: not a YAML file; name it {file.stem}.yml or move it away")
        if os.access(file, os.X_OK):
            raise UsageError(f"{place(file)}: is executable, so Ansible would run it; chmod -x it")
    if not files:
        text = "write one as in inventory/local; in a rehearsal cluster, lab up does"
        raise UsageError(f"{place(path)}: no hosts.yml; {text}")
    return files


def _entries(path: Path) -> list[Path]:
    try:
        entries = sorted(path.iterdir())
    except OSError as error:
        raise UsageError(f"{place(path)}: cannot be read: {error.strerror}") from error
    entries = [entry for entry in entries if entry.name[0] != "." and not entry.name.endswith(IGNORED)]
    for entry in entries:
        if not stat.S_ISDIR(mode := entry.lstat().st_mode) and not stat.S_ISREG(mode):
            raise UsageError(
                f"{place(entry)}: neither a file nor a folder; put the file itself there, not a link"
            )
    return entries


def _vars_files(path: Path, kind: str, owners: list[str]) -> Iterator[tuple[str, Path]]:
    if not path.exists():
        return
    seen: dict[str, Path] = {}
    for entry in _entries(path):
        owner = entry.name if entry.is_dir() else entry.name.removesuffix(entry.suffix)
        if not entry.is_dir() and entry.suffix not in YAML:
            raise UsageError(f"{place(entry)}: not a YAML file; name it {owner}.yml or move it away")
        if owner not in owners:
            raise UsageError(f"{place(entry)}: no {kind} is called {shown(owner)}; {hint(owner, owners)}")
        if owner in seen:
            raise UsageError(
                f"{place(entry)}: Ansible reads only one of this and {seen[owner].name}; join them"
            )
        seen[owner] = entry
        yield from ((owner, file) for file in (_below(entry) if entry.is_dir() else [entry]))


def _below(path: Path) -> Iterator[Path]:
    for entry in _entries(path):
        if entry.is_dir() or entry.suffix not in YAML:
            raise UsageError(f"{place(entry)}: not a YAML file; put NAME.yml files here")
        yield entry


@dataclass(frozen=True, slots=True)
class _File:
    """Carries what one file says into the folder's record."""

    folder: Folder
    path: Path
    from_vars: bool = False

    def read_hosts(self) -> None:
        for name, body in self.mapping(yamlfile.read(self.path), "a hosts file").items():
            self.group(name, body, None if name == "all" else "all", 0)

    def group(self, name: Any, body: Any, parent: str | None, level: int) -> None:
        if not is_word(name) or "-" in name:
            raise UsageError(f"{place(self.path)}: group {shown(name)}: use letters, digits and _")
        if level > DEPTH:
            raise UsageError(f"{place(self.path)}: group {name}: nested too deeply")
        self.folder.parents.setdefault(name, set()).update({parent} if parent else ())
        sections = self.mapping(Located() if body is None else body, f"group {name}")
        for key, section in sections.items():
            if key not in SECTIONS:
                text = (
                    f"a group has hosts, vars and children; {hint(key, SECTIONS)}; variables stand under vars"
                )
                at = f"{place(self.path)}:{sections.lines[key]}"
                raise UsageError(f"{at}: group {name}: {shown(key)}: unknown key; {text}")
            self.section(key, section, name, level)

    def section(self, key: str, section: Any, group: str, level: int) -> None:
        entries = self.mapping(
            Located() if section is None else section, f"group {group}: {key}", "write NAME: with a colon"
        )
        if key == "vars":
            self.settings(entries, group, of_host=False)
        for name, body in entries.items():
            if key == "children":
                self.group(name, body, group, level + 1)
            elif key == "hosts":
                self.host(name, body, group, entries.lines[name])

    def host(self, name: Any, body: Any, group: str, line: int) -> None:
        if not is_name(name):
            text = (
                "a host name has letters, digits, . _ and -; write every host out, its port as ansible_port"
            )
            raise UsageError(f"{place(self.path)}:{line}: host {shown(name)}: {text}")
        if name not in self.folder.groups:
            self.folder.hosts.append(name)
        self.folder.groups.setdefault(name, set()).add(group)
        self.settings(body, name, of_host=True)

    def settings(self, document: Any, owner: str, of_host: bool) -> None:
        if document is None:
            return
        entries = self.mapping(document, f"the variables of {owner}")
        for key, value in entries.items():
            where = f"{place(self.path)}:{entries.lines[key]}"
            slot = (owner, of_host, self.from_vars, key)
            if slot in self.folder.settings:
                first = self.folder.settings[slot].where
                raise UsageError(f"{where}: {shown(key)}: set for {owner} in {first} too; remove one")
            self.folder.settings[slot] = Setting(where, *slot, value)

    def mapping(self, value: Any, what: str, advice: str = "write KEY: VALUE lines") -> Located:
        if not isinstance(value, Located):
            raise UsageError(f"{place(self.path)}: {what} must be a mapping, is {valued(value)}; {advice}")
        return value
