"""A cluster: one folder under ``inventory/``, checked strictly, its effective values as Ansible sees them."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from runner.errors import UsageError
from runner.io import inventory_folder, specs
from runner.io.cluster_facts import CLUSTER_WIDE, PER_HOST, WORDS, is_inside, unfit
from runner.io.files import ROOT
from runner.io.inventory_folder import Folder, Setting
from runner.io.yamlfile import Vault, place
from runner.model import Cluster, Host
from runner.names import hint, is_name, shown, valued

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
    if folder.vaults:
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
    if setting.key in CLUSTER_WIDE or setting.key in PER_HOST:
        if specs.is_template(setting.value) or isinstance(setting.value, Vault):
            raise UsageError(f"{at}: must be literal, neither a template nor vaulted; write the value out")
        if isinstance(setting.value, str) and not setting.value.isprintable():
            raise UsageError(f"{at}: must be one line of printable text")
    if wrong := unfit(setting.key, setting.value) or specs.problem(known[setting.key], setting.value):
        raise UsageError(f"{at}: {wrong}")


def _cluster(folder: Folder, values: Values, known: Mapping[str, specs.Option]) -> Cluster:
    hosts = tuple(_host(folder, name, values[name]) for name in folder.hosts)
    facts = {key: _common(folder, key, values, known) for key in CLUSTER_WIDE}
    _refuse_same_machine(folder, hosts)
    _refuse_outside(folder, hosts, facts["cluster_cidr"])
    _refuse_other_count(folder, hosts, facts["cluster_total_cards"])
    _refuse_gid_index(folder, facts["cluster_env"], facts["cluster_fabric"])
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
        interface=facts["cluster_interface"],
        fabric=facts["cluster_fabric"],
        port=facts["cluster_port"],
        data_root=facts["cluster_data_root"],
        registry=facts["cluster_registry"],
        driver=facts["cluster_driver"],
        env=dict(facts["cluster_env"]),
    )


def _host(folder: Folder, name: str, values: Mapping[str, Any]) -> Host:
    cards, address = values.get("cluster_cards"), values.get("ansible_host") or name
    if cards is None:
        raise UsageError(
            f"{place(folder.path)}: host {name}: cluster_cards is missing; set it to the number of cards"
        )
    for key, value in (("cluster_cards", cards), ("ansible_host", address)):
        if wrong := unfit(key, value):
            raise UsageError(f"{place(folder.path)}: host {name}: {key}: {wrong}")
    connection = "local" if values.get("ansible_connection") == "local" else "ssh"
    return Host(name, address, cards, connection, values.get("host_names_address") or "")


def _for_others(host: Host) -> tuple[str, str]:
    """Return the address that the other hosts use, behind the variable that states it."""
    return "host_names_address" if host.inner else "ansible_host", host.for_others


def _refuse_same_machine(folder: Folder, hosts: tuple[Host, ...]) -> None:
    """Refuse an address that two hosts share, be it for Ansible or for the other hosts."""
    seen: dict[str, str] = {}
    for host in hosts:
        for key, stated in (("ansible_host", host.address), _for_others(host)):
            address = stated.lower().rstrip(".")
            if host.connection == "local" or address == "localhost" or address.startswith("127."):
                address = "this machine"
            if seen.setdefault(address, host.name) != host.name:
                text = f"same address as {seen[address]} ({shown(address)}); every machine stands once"
                raise UsageError(f"{folder.whereabouts(host.name, key)}: host {host.name}: {key}: {text}")


def _refuse_outside(folder: Folder, hosts: tuple[Host, ...], network: str) -> None:
    """Refuse an address for the other hosts that is not in the cluster's network."""
    for host in hosts:
        key, address = _for_others(host)
        if host.connection != "local" and not is_inside(address, network):
            text = f"{shown(address)} is outside {network}, which cluster_cidr states; correct one of the two"
            if key == "ansible_host":
                text += ", or state the address in that network as host_names_address"
            raise UsageError(f"{folder.whereabouts(host.name, key)}: host {host.name}: {key}: {text}")


def _refuse_other_count(folder: Folder, hosts: tuple[Host, ...], stated: int) -> None:
    found = sum(host.cards for host in hosts)
    if stated and stated != found:
        each = ", ".join(f"{host.name}: {host.cards}" for host in hosts[:8]) + (", ..." if hosts[8:] else "")
        at = folder.whereabouts(hosts[0].name, "cluster_total_cards")
        text = f"states {stated} cards, the hosts have {found} ({each})"
        raise UsageError(f"{at}: cluster_total_cards: {text}; correct one of the two")


def _refuse_gid_index(folder: Folder, env: Mapping[str, str], fabric: str) -> None:
    """Refuse an entry of RoCE's table of addresses where there is no RoCE."""
    if "NCCL_IB_GID_INDEX" in env and fabric != "roce":
        has = f"cluster_fabric is {fabric}" if fabric else "cluster_fabric is not stated"
        text = f"is for RoCE alone, and {has}; delete that line, or state cluster_fabric: roce"
        at = folder.whereabouts(folder.hosts[0], "cluster_env")
        raise UsageError(f"{at}: cluster_env: NCCL_IB_GID_INDEX: {text}")


def _common(folder: Folder, key: str, values: Values, known: Mapping[str, specs.Option]) -> Any:
    """Return the value that all hosts have in common, of the type that CLUSTER_WIDE says."""
    default, kind = known[key].default if key in known else None, CLUSTER_WIDE[key]
    found = {host: values[host].get(key, default) for host in folder.hosts}
    first, *others = folder.hosts
    for host in others:
        if found[host] != found[first]:
            text = f"differs between {first} and {host}; set it once, in group_vars/all/cluster.yml"
            raise UsageError(f"{place(folder.path)}: {key}: {text}")
    value = found[first]
    literal = not isinstance(value, str) or (not specs.is_template(value) and value.isprintable())
    if not isinstance(value, kind) or isinstance(value, bool) or not literal:
        text = f"must be literal, {WORDS[kind]}, is {valued(value)}"
        raise UsageError(f"{place(folder.path)}: {key}: {text}")
    if wrong := unfit(key, value):  # from a file that only Ansible could read
        raise UsageError(f"{place(folder.path)}: {key}: {wrong}")
    return value


def _own_mpirun() -> str:
    beside = Path(sysconfig.get_path("scripts")) / "mpirun"
    return str(beside) if beside.exists() else "mpirun"
