"""YAML as plain data: bounded, strict, and every complaint names its file and line.

PyYAML takes the last of two equal keys in silence and follows aliases that blow up; here both are errors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from runner.errors import UsageError
from runner.io import regular
from runner.names import printable, shown

LIMIT = 1 << 20  # bytes; a file of settings is far smaller


class Located(dict[Any, Any]):
    """A mapping that remembers the line of each key, counted from 1."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[Any, int] = {}


class Vault:
    """A value that only Ansible can read (``!vault``, or a whole file that ansible-vault encrypted)."""

    def __init__(self, text: str) -> None:
        self.text = text  # as it is encrypted

    def __repr__(self) -> str:
        return "a vaulted value"


class _Loader(yaml.CSafeLoader):
    pass


def _mapping(loader: _Loader, node: yaml.MappingNode) -> Located:
    result = Located()
    for key_node, value_node in node.value:
        mark = key_node.start_mark
        if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == "tag:yaml.org,2002:merge":
            raise yaml.MarkedYAMLError(problem="a key must be plain text", problem_mark=mark)
        key = loader.construct_object(key_node, deep=True)
        if key in result:
            text = f"key {shown(key)} stands twice, first in line {result.lines[key]}; remove one"
            raise yaml.MarkedYAMLError(problem=text, problem_mark=mark)
        result[key] = loader.construct_object(value_node, deep=True)
        result.lines[key] = mark.line + 1
    return result


def _unsafe(loader: _Loader, node: yaml.ScalarNode) -> str:
    return str(loader.construct_scalar(node))


def _vault(loader: _Loader, node: yaml.ScalarNode) -> Vault:
    return Vault(_unsafe(loader, node))


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
_Loader.add_constructor("!vault", _vault)
_Loader.add_constructor("!unsafe", _unsafe)


def place(path: Path) -> str:
    """``path`` as a message shows it: relative to the current directory where it lies below."""
    try:
        return printable(str(path.absolute().relative_to(Path.cwd())))
    except ValueError:
        return printable(str(path))


def read(path: Path) -> Any:
    """Return the one document of ``path``; mappings are ``Located``, an empty file is None.

    Raises UsageError with file and line on anything that is not plain, bounded, unambiguous YAML.
    """
    text = regular.text(path, place(path), LIMIT, "put a YAML file there")
    if text.startswith("$ANSIBLE_VAULT;"):
        return Vault(text)
    try:
        for event in yaml.parse(text, Loader=_Loader):
            if isinstance(event, yaml.AliasEvent):
                raise yaml.YAMLError(f"alias *{event.anchor}; write the value out")
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a subclass of the safe loader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        problem = " ".join(part for part in (error.problem, error.context) if part) or "not valid YAML"
        raise UsageError(f"{place(path)}{line}: {printable(problem)}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise UsageError(f"{place(path)}: cannot be read as YAML: {shown(str(error))}") from error
    except RecursionError as error:
        raise UsageError(f"{place(path)}: nested too deeply") from error
