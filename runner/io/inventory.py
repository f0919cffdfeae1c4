"""A cluster: one folder under ``inventory/``, checked strictly, its effective values as Ansible sees them."""

from __future__ import annotations

import ipaddress
import re
import sys
import sysconfig
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from runner.errors import UsageError
from runner.io import inventory_folder, specs
from runner.io.files import ROOT
from runner.io.inventory_folder import Folder, Setting
from runner.io.yamlfile import Vault, place
from runner.model import Cluster, Host
from runner.names import hint, is_name, shown, valued

CLUSTER_WIDE = (
    *("cluster_title", "cluster_card_model", "cluster_python", "cluster_mpirun", "cluster_cidr"),
    *("bench_agent_root", "bench_agent_python"),
)
PER_HOST = ("cluster_cards", "ansible_host", "ansible_connection")
MOST_CARDS = 100_000  # of one host; more is a slip of the finger
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)

Values = Mapping[str, Mapping[str, Any]]  # host -> variable -> value
InventoryList = Callable[[Path], Mapping[str, Any]]


def names(root: Path = ROOT) -> tuple[str, ...]:
    """List the clusters under ``inventory/``, sorted."""
    folder = root / "inventory"
    return (
        tuple(sorted(p.name for p in folder.iterdir() if p.is_dir() and is_name(p.name)))
        if folder.is_dir()
        else ()
    )


def find(name_or_path: str, root: Path = ROOT) -> Path:
    """Return the folder of a cluster: a name under ``inventory/``, else a path.

    Raises UsageError that tells the nearest name.
    """
    path = root / "inventory" / name_or_path if is_name(name_or_path) else Path(name_or_path)
    if not path.exists():
        path = Path(name_or_path)
    if not name_or_path.strip() or not path.exists():
        looked = f"looked in {place(root / 'inventory')} and for a folder of that path"
        raise UsageError(
            f"-i {shown(name_or_path)}: no such cluster; {hint(name_or_path, names(root))}; {looked}"
        )
    if not path.is_dir():
        raise UsageError(
            f"-i {shown(name_or_path)}: a cluster is a folder; name the one that holds this file"
        )
    return path.resolve()


def is_hostless(name_or_path: str, root: Path = ROOT) -> bool:
    """Whether no file of the cluster can name hosts, as where a rehearsal cluster is not up."""
    return inventory_folder.is_hostless(find(name_or_path, root))


def load(name_or_path: str, inventory_list: InventoryList, root: Path = ROOT) -> Cluster:
    """Check every file of the cluster, then take the values from ``inventory_list``.

    ``inventory_list`` maps the folder to what ``ansible-inventory --list`` prints of it.
    Raises UsageError, one line that names file and key.
    """
    folder, known = _checked(name_or_path, root)
    try:
        hostvars: Values = inventory_list(folder.path)["_meta"]["hostvars"]
    except (KeyError, TypeError) as error:
        raise UsageError(f"{place(folder.path)}: ansible-inventory lists no hosts there") from error
    if odd := set(hostvars) ^ set(folder.hosts):
        raise UsageError(
            f"{place(folder.path)}: host {shown(min(odd))}: only one of Ansible and runkit sees it"
        )
    return _cluster(folder, hostvars, known)


def outline(name_or_path: str, root: Path = ROOT) -> Cluster:
    """As ``load``, but by runkit's own reading of the files: quick, and blind to what is vaulted."""
    folder, known = _checked(name_or_path, root)
    return _cluster(folder, {host: folder.values(host) for host in folder.hosts}, known)


@cache  # one command sees one inventory
def hostvars(path: Path, inventory_list: InventoryList) -> Values:
    """The variables of each host of a folder that was checked: from Ansible only where something is vaulted.

    Ansible takes a second to say what stands in the files. Raises UsageError where they cannot be read.
    """
    folder = inventory_folder.read(path)
    if folder.vaulted:
        found: Values = inventory_list(path)["_meta"]["hostvars"]
        return found
    return {host: folder.values(host) for host in folder.hosts}


def _checked(name_or_path: str, root: Path) -> tuple[Folder, Mapping[str, specs.Option]]:
    path = find(name_or_path, root)
    if not is_name(path.name):
        raise UsageError(f"{place(path)}: a cluster's name has letters, digits, . _ and -; rename the folder")
    folder, known = inventory_folder.read(path), specs.load(root)
    for setting in folder.settings.values():
        _check(setting, known)
    return folder, known


def _check(setting: Setting, known: Mapping[str, specs.Option]) -> None:
    at = f"{setting.where}: {shown(setting.key)}"
    if setting.key not in known:
        raise UsageError(f"{at}: unknown variable; {hint(setting.key, known)}")
    if setting.key in CLUSTER_WIDE + PER_HOST:
        if specs.is_template(setting.value) or isinstance(setting.value, Vault):
            raise UsageError(f"{at}: must be literal, neither a template nor vaulted; write the value out")
        if isinstance(setting.value, str) and not setting.value.isprintable():
            raise UsageError(f"{at}: must be one line of printable text")
    if wrong := _unfit(setting.key, setting.value) or specs.problem(known[setting.key], setting.value):
        raise UsageError(f"{at}: {wrong}")


def _unfit(key: str, value: Any) -> str | None:
    """Say what is wrong with a fact beyond its type, or None."""
    if key == "cluster_cards" and (
        not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= MOST_CARDS
    ):
        return f"must be a positive whole number, is {valued(value)}; count the cards of the host"
    if key == "cluster_cidr" and value and not _is_network(str(value)):
        return f"must be a network such as 192.168.10.0/24, is {valued(value)}"
    if key == "ansible_host" and not _ADDRESS.fullmatch(str(value)):
        return f"must be a host name or an IPv4 address, is {valued(value)}"
    if key == "bench_agent_root" and not str(value).startswith(("/", "~/")):
        return f"must be a full path, or begin with ~/, is {valued(value)}"
    return None


def _is_network(text: str) -> bool:
    try:
        return bool(ipaddress.ip_network(text).num_addresses > 1)
    except ValueError:
        return False


def _cluster(folder: Folder, values: Values, known: Mapping[str, specs.Option]) -> Cluster:
    hosts = tuple(_host(folder, name, values[name]) for name in folder.hosts)
    _refuse_same_machine(folder, hosts)
    facts = {key: _common(folder, key, values, known) for key in CLUSTER_WIDE}
    here = all(host.connection == "local" for host in hosts)
    return Cluster(
        name=folder.path.name,
        path=str(folder.path),
        title=facts["cluster_title"] or folder.path.name,
        hosts=hosts,
        card_model=facts["cluster_card_model"],
        python=facts["cluster_python"] or (sys.executable if here else "/usr/bin/python3"),
        mpirun=facts["cluster_mpirun"] or (_own_mpirun() if here else "mpirun"),
        agent_root=facts["bench_agent_root"],
        cidr=facts["cluster_cidr"],
        agent_python=facts["bench_agent_python"],
    )


def _host(folder: Folder, name: str, values: Mapping[str, Any]) -> Host:
    cards, address = values.get("cluster_cards"), values.get("ansible_host") or name
    if cards is None:
        raise UsageError(
            f"{place(folder.path)}: host {name}: cluster_cards is missing; set it to the number of cards"
        )
    for key, value in (("cluster_cards", cards), ("ansible_host", address)):
        if wrong := _unfit(key, value):
            raise UsageError(f"{place(folder.path)}: host {name}: {key}: {wrong}")
    return Host(name, address, cards, "local" if values.get("ansible_connection") == "local" else "ssh")


def _refuse_same_machine(folder: Folder, hosts: tuple[Host, ...]) -> None:
    seen: dict[str, str] = {}
    for host in hosts:
        address = host.address.lower().rstrip(".")
        if host.connection == "local" or address == "localhost" or address.startswith("127."):
            address = "this machine"
        if address in seen:
            text = f"ansible_host: same address as {seen[address]} ({address}); every machine stands once"
            raise UsageError(f"{place(folder.path)}: host {host.name}: {text}")
        seen[address] = host.name


def _common(folder: Folder, key: str, values: Values, known: Mapping[str, specs.Option]) -> str:
    default = known[key].default if key in known else None
    found = {host: values[host].get(key, default) for host in folder.hosts}
    first, *others = folder.hosts
    for host in others:
        if found[host] != found[first]:
            text = f"differs between {first} and {host}; set it once, in group_vars/all/cluster.yml"
            raise UsageError(f"{place(folder.path)}: {key}: {text}")
    if not isinstance(found[first], str) or specs.is_template(found[first]) or not found[first].isprintable():
        raise UsageError(f"{place(folder.path)}: {key}: must be literal text, is {valued(found[first])}")
    return str(found[first])


def _own_mpirun() -> str:
    beside = Path(sysconfig.get_path("scripts")) / "mpirun"
    return str(beside) if beside.exists() else "mpirun"
