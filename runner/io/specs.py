"""The variables an inventory may set: the options of the roles, and how Ansible reaches a host.

The interface of a role is its ``meta/argument_specs.yml``; its defaults are in ``defaults/main.yml`` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.errors import UsageError
from runner.io import yamlfile
from runner.names import hint, shown, valued


@dataclass(frozen=True, slots=True)
class Option:
    """One variable: type in Ansible's words, the values it may take (any where empty), default."""

    name: str
    type: str = "str"
    choices: tuple[Any, ...] = ()
    elements: str = ""
    default: Any = None


TEXT, WHOLE, NUMBER, SWITCH, ITEMS, PAIRS = (
    "text",
    "a whole number",
    "a number",
    "true or false",
    "a list",
    "a mapping",
)
_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), TEXT),
    "path": ((str,), TEXT),
    "int": ((int,), WHOLE),
    "float": ((int, float), NUMBER),
    "bool": ((bool,), SWITCH),
    "list": ((list,), ITEMS),
    "dict": ((dict,), PAIRS),
}

_WORDS = (
    "host user password private_key_file ssh_private_key_file ssh_common_args ssh_extra_args ssh_executable "
    "ssh_password scp_extra_args sftp_extra_args python_interpreter "
    "become_user become_method become_password become_exe become_flags "
    "shell_type shell_executable remote_tmp control_path control_path_dir"
)
CONNECTION = {
    option.name: option
    for option in (
        *(Option(f"ansible_{word}") for word in _WORDS.split()),
        *(
            Option(f"ansible_{word}", "bool")
            for word in ("become", "host_key_checking", "pipelining", "ssh_pipelining")
        ),
        *(Option(f"ansible_{word}", "int") for word in ("port", "timeout", "ssh_timeout", "ssh_retries")),
        Option("ansible_connection", choices=("local", "ssh")),
    )
}


def load(root: Path) -> dict[str, Option]:
    """Return every variable that an inventory may set, by name. Raises UsageError on a broken role."""
    known = dict(CONNECTION)
    for path in sorted((root / "roles").glob("*/meta/argument_specs.yml")):
        defaults_file = path.parents[1] / "defaults" / "main.yml"
        defaults = yamlfile.read(defaults_file) or {} if defaults_file.exists() else {}
        for entry in _under(yamlfile.read(path), "argument_specs", path).values():
            for name, body in _under(entry, "options", path, optional=True).items():
                known[name] = _option(name, body or {}, defaults.get(name))
    return known


def problem(option: Option, value: Any) -> str | None:
    """Say what is wrong with ``value``, or None. Templates and vaulted values are Ansible's to judge."""
    if isinstance(value, yamlfile.Vault) or is_template(value):
        return None
    if value is None:
        return "has no value; give it one or remove the line"
    if option.choices and value not in option.choices:
        return f"{shown(value)} is not possible; {hint(value, map(str, option.choices))}"
    wrong = _mismatch(option.type, value)
    if wrong is None and option.elements and isinstance(value, list):
        wrong = next(
            (
                f"item {i}: {text}"
                for i, item in enumerate(value, 1)
                if (text := _mismatch(option.elements, item))
            ),
            None,
        )
    return wrong


def is_template(value: Any) -> bool:
    """Whether Ansible would replace something in ``value``."""
    return isinstance(value, str) and ("{{" in value or "{%" in value)


def _mismatch(kind: str, value: Any) -> str | None:
    types, words = _TYPES.get(kind, ((object,), ""))
    good = isinstance(value, types) and (kind == "bool" or not isinstance(value, bool) or types == (object,))
    if good or is_template(value):
        return None
    advice = "; put it in quotes" if words == TEXT and isinstance(value, int | float) else ""
    return f"must be {words}, is {valued(value)}{advice}"


def _option(name: str, body: Mapping[str, Any], default: Any) -> Option:
    return Option(
        name, body.get("type", "str"), tuple(body.get("choices") or ()), body.get("elements") or "", default
    )


def _under(document: Any, key: str, path: Path, *, optional: bool = False) -> Mapping[str, Any]:
    found = document.get(key) if isinstance(document, dict) else None
    if found is None and optional:
        return {}
    if not isinstance(found, dict):
        raise UsageError(f"{yamlfile.place(path)}: {key} must be a mapping")
    return found
