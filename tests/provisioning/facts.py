"""Hosts as files of facts: systems.yml, machines.yml and hosts.yml together.

A host is a folder that stands for its / and a file that the connection plugin ``recorded`` answers from. A
host that was provisioned is one to which all that --check said was done; brought.yml has what packages
bring.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml
from provisioning.said import PACKAGES, UNITS, Facts, Said, names_of

HERE = Path(__file__).resolve().parent
LIMITS = """\
1048576
Max stack size            8388608              unlimited            bytes
Max open files            1048576              1048576              files
Max locked memory         8388608              8388608              bytes
CapEff:\t000001ffffffffff
         0          0 4294967295
"""
# What no archive of a distribution has, or not before a component of it is switched on.
VENDORS = [
    *("cuda-*", "nvidia-*", "kmod-nvidia*", "libnvidia-container*", "dkms", "doca-*"),
    *("docker-ce*", "containerd.io", "docker-buildx-plugin", "docker-compose-plugin"),
]
REPOSITORIES = ("cuda", "container_toolkit", "docker", "doca")
# The smallest file that is a public key: a packet of six bytes, RFC 9580 section 5.5.2. Nobody has its other
# half.
OUR_PACKET = bytes([4, 0, 0, 0, 0, 1])
OUR_PRINT = hashlib.sha1(b"\x99\x00\x06" + OUR_PACKET).hexdigest().upper()
NEXT_PRINT = "F" * 40  # of the key that will follow it, which no file has yet
OUR_KEY = (
    "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n"
    + base64.b64encode(b"\x9a\x00\x00\x00\x06" + OUR_PACKET).decode()
    + "\n-----END PGP PUBLIC KEY BLOCK-----\n"
)
# A host as a data centre hands it over, but for what is its own.
ORDINARY: Facts = {
    "files": {
        "/etc/hosts": "127.0.0.1 localhost\n",
        "/etc/dnf/dnf.conf": "[main]\ngpgcheck=1\n",
    },
    "folders": [
        "/etc/apt/apt.conf.d",
        "/etc/apt/keyrings",
        "/etc/apt/preferences.d",
        "/etc/dnf/plugins",
        "/etc/modprobe.d",
        "/etc/modules-load.d",
        "/etc/yum.repos.d",
    ],
    "installed": {},
    "unknown": VENDORS,
    "known": [],
    "held": [],
    "module": {},
    "units": {"ssh": {"enabled": True, "active": True}, "sshd": {"enabled": True, "active": True}},
    "users": {"root": "root:x:0:0:root:/root:/bin/bash"},
    "commands": {
        "cat /proc/sys/fs/nr_open /proc/1/limits /proc/1/status /proc/1/uid_map": LIMITS,
        "systemctl show --property=NeedDaemonReload --value nvidia-persistenced": "no",
    },
    "scripts": {"busy.py": "[]", "due.py": '{"driver": [], "system": [], "boot": ""}'},
    "facts": {},
}


def described() -> dict[str, Facts]:
    """Host -> all that is known of it."""
    systems, machines, hosts = (
        yaml.safe_load((HERE / f"{each}.yml").read_text()) for each in ("systems", "machines", "hosts")
    )
    return {
        name: _merged(ORDINARY, systems[own["system"]], machines[own["machine"]], own)
        for name, own in hosts.items()
    }


def _merged(*layers: Facts) -> Facts:
    """Later layers win; mappings are merged, lists added."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            old = merged.get(key)
            if isinstance(old, dict) and isinstance(value, dict):
                merged[key] = {**old, **value}
            elif isinstance(old, list) and isinstance(value, list):
                merged[key] = [*old, *value]
            else:
                merged[key] = value
    return merged


# --- on disk ----------------------------------------------------------------------------------


def build(name: str, facts: Facts, folder: Path) -> Facts:
    """Make the host in ``folder``; return what an inventory says of it."""
    root = folder / name
    for each in facts["folders"]:
        (root / each.lstrip("/")).mkdir(parents=True, exist_ok=True)
    devices, variables = facts["pci"], facts.get("vars", {})
    found = {**_bus(devices), **_ports(devices, variables.get("cluster_fabric", ""))}
    for path, text in {**found, **facts.get("sources", {}), **facts["files"]}.items():
        at = root / path.lstrip("/")
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(text)
        at.chmod(0o644)
    file = folder / f"{name}.json"
    file.write_text(json.dumps({"root": str(root), **_known(name, facts)}))
    return {
        "ansible_connection": "recorded",
        "ansible_host": _address(name),
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_recorded_host": str(file),
        "cluster_card_model": facts["model"],
        "cluster_cards": facts["cards"],
        **variables,
    }


def _address(name: str) -> str:
    return f"192.0.2.{1 + list(described()).index(name)}"


def _bus(devices: Mapping[str, int]) -> dict[str, str]:
    """The files of sysfs that say what a device on the PCI bus is."""
    triples = [triple.split() for triple, count in devices.items() for _ in range(count)]
    keys = ("class", "vendor", "device")
    return {
        f"/sys/bus/pci/devices/0000:{number:02x}:00.0/{key}": f"{value}\n"
        for number, triple in enumerate(triples, 1)
        for key, value in zip(keys, triple, strict=True)
    }


def _ports(devices: Mapping[str, int], fabric: str) -> dict[str, str]:
    """The files of sysfs about ports of network adapters of Mellanox, all of them up."""
    layer = {"infiniband": "InfiniBand", "roce": "Ethernet"}.get(fabric)
    count = sum(number for triple, number in devices.items() if " 0x15b3 " in triple) if layer else 0
    state = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "link_layer": layer}
    folder = "/sys/class/infiniband/mlx5_{}/ports/1/{}"
    return {folder.format(each, key): f"{value}\n" for each in range(count) for key, value in state.items()}


def _known(name: str, facts: Facts) -> Facts:
    """The facts as the stand-in reads them."""
    release = "\n".join(f'{key}="{value}"' for key, value in facts["release"].items())
    said = f"MACHINE=x86_64\nLOGIN=root\nPYTHON=/usr/bin/python3\n{release}\n{facts.get('greeting', '')}\n"
    version = [int(each) for each in str(facts["facts"].get("python_version", "3.9.0")).split(".")]
    found = {
        **facts["facts"],
        "python": {
            "executable": "/usr/bin/python3",
            "version": dict(zip(("major", "minor", "micro"), version, strict=True)),
        },
        "default_ipv4": {"address": _address(name), "interface": "eth0"},
        "hostname": name,
        "ssh_host_key_ed25519_public": "AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 43,
        "ssh_host_key_ed25519_public_keytype": "ssh-ed25519",
    }
    kept = ("installed", "unknown", "known", "held", "module", "units", "users", "commands", "scripts")
    return {
        "ansible_facts": {f"ansible_{key}": value for key, value in found.items()},
        "greeting": said,
        **{key: facts[key] for key in kept},
    }


# --- a host that was provisioned --------------------------------------------------------------


def provisioned(facts: Facts, said: Said) -> Facts:
    """The facts of a host after all that --check said was done to it.

    In place of the vendors' keys stands one of ours, and its fingerprint in place of those that are pinned.
    """
    made: dict[str, Any] = {"folders": [], "held": [], "known": ["*"], "installed": {}, "units": {}}
    for each in said.changes:
        told = each["args"]
        if each["action"] in PACKAGES and told.get("state") != "absent":
            parted = _rpm if facts["facts"]["os_family"] == "RedHat" else _deb
            made["installed"] |= dict(map(parted, names_of(each)))
        elif each["action"] == "dpkg_selections":
            made["held"].append(told["name"])
        elif each["action"] == "file" and told.get("state") == "directory":
            made["folders"].append(told["path"])
        elif each["action"] == "rpm_key":
            made["installed"][f"gpg-pubkey:{OUR_PRINT}"] = "1"
        elif each["action"] in UNITS and told.get("name"):
            made["units"][told["name"]] = {"enabled": True, "active": told.get("state") != "stopped"}
    files = {path: OUR_KEY if text.startswith("the key ") else text for path, text in said.files.items()}
    pinned = {name: {"fingerprints": [OUR_PRINT, NEXT_PRINT]} for name in REPOSITORIES}
    variables = {"vars": {"vendor_sources_repositories": pinned}}
    return _merged(facts, made, *_brought(made["installed"]), {"files": files}, variables)


def _deb(spec: str) -> tuple[str, str]:
    """Name and version by how apt was asked: ``name=1.0-1`` or ``name``."""
    name, _, version = spec.partition("=")
    return name, version.replace("*", "1") or "1.0-1"


def _rpm(spec: str) -> tuple[str, str]:
    """Name and version by how dnf was asked: ``name-1.0-1`` or ``name``."""
    found = re.fullmatch(r"(.+?)-(?=\d+[.:])(\S+)", spec)
    return (found[1], found[2].replace("*", "1")) if found else (spec, "1.0-1")


def _brought(installed: Mapping[str, str]) -> list[Facts]:
    known = yaml.safe_load((HERE / "brought.yml").read_text())
    return [
        facts for pattern, facts in known.items() if any(fnmatchcase(name, pattern) for name in installed)
    ]
