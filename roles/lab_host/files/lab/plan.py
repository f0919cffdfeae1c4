"""What a lab will be: its hosts, its network, the key that opens it. Files only; nothing is started here."""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import subprocess
from pathlib import Path

import names
import traces
from names import Host, Lab, LabError

NETWORKS = "10.213.{}"  # private (RFC 1918), and seldom used
FIRST = 10  # the last byte of the first host's address, less one
CARDS = 32  # process slots of the whole lab
MOST_HOSTS = 32
RELEASES = {"bookworm": "Debian 12", "trixie": "Debian 13"}
USER = "runkit"  # an ordinary user of every host, with sudo
HEADER = "# Written by `lab up`, removed by `lab down`.\n"


def make(name: str, folder: Path, count: int | None, releases: list[str]) -> Lab:
    """Plan a lab, or find the one that is there. Raises LabError where that one is another."""
    if not is_ours(folder / "hosts.yml"):
        raise LabError(
            f"{folder}: its hosts.yml is not a lab's, and stays; copy inventory/lab for a lab of your own"
        )
    names.STATE.mkdir(parents=True, exist_ok=True)
    with names.locked(names.STATE):
        lab = names.read(name)
        if lab is None:
            if (left := traces.find(name)).processes or left.mounts or left.links:
                raise LabError(
                    f"lab {name}: remains of one are here; remove them first: lab down -i {folder}"
                )
            lab = _new(name, folder, 4 if count is None else count, releases or ["bookworm"])
            names.write(lab)
    _refuse_other(lab, folder, count, releases)
    _keys(lab)
    _inventory(lab)
    return lab


def is_ours(path: Path) -> bool:
    """Whether a file is free to be written: it is not there, or a lab wrote it."""
    return not path.exists() or path.read_text("utf-8", "replace").startswith(HEADER)


def forget(folder: Path) -> None:
    """Take away what is in the cluster's folder."""
    path = folder / "hosts.yml"
    if is_ours(path):
        path.unlink(missing_ok=True)
        shutil.rmtree(path.parent / ".ssh", ignore_errors=True)


def _new(name: str, folder: Path, count: int, releases: list[str]) -> Lab:
    if not 0 < count <= MOST_HOSTS:
        raise LabError(f"--hosts {count}: a lab has 1 to {MOST_HOSTS} hosts")
    for release in releases:
        if release not in RELEASES:
            raise LabError(f"--release {release}: not known; there are {', '.join(RELEASES)}")
    subnet = _free_subnet()
    hosts = [
        Host(
            name=f"{name}{i}",
            release=releases[(i - 1) % len(releases)],
            address=f"{subnet}.{FIRST + i}",
            cards=_share(count, i),
            uid=names.UIDS + (int(subnet.rpartition(".")[2]) * MOST_HOSTS + i - 1) * names.UID_COUNT,
        )
        for i in range(1, count + 1)
    ]
    return Lab(name, str(folder), subnet, _mirror(), tuple(hosts))


def _share(count: int, number: int) -> int:
    """Of the lab's cards, those of host ``number``; the first ones take what does not divide."""
    return CARDS // count + (1 if number <= CARDS % count else 0)


def _refuse_other(lab: Lab, folder: Path, count: int | None, releases: list[str]) -> None:
    told = f"end it first: lab down -i {folder}"
    if lab.folder != str(folder):
        its = lab.folder if Path(lab.folder).is_dir() else folder  # its own may be gone
        raise LabError(f"lab {lab.name} is that of {lab.folder}; end it first: lab down -i {its}")
    if count is not None and count != len(lab.hosts):
        raise LabError(f"--hosts {count}: lab {lab.name} has {len(lab.hosts)} hosts; {told}")
    planned = [host.release for host in lab.hosts]
    if releases and planned != [releases[i % len(releases)] for i in range(len(planned))]:
        raise LabError(f"--release {','.join(releases)}: lab {lab.name} has {','.join(planned)}; {told}")


def _free_subnet() -> str:
    """A /24 that neither this machine's routes nor another lab use."""
    routes = json.loads(_output(["ip", "-json", "-4", "route", "show", "table", "all"]))
    used = [ipaddress.ip_network(route["dst"], strict=False) for route in routes if route["dst"] != "default"]
    planned = {lab.subnet for lab in map(names.read, names.known()) if lab is not None}
    for number in range(1, 250):
        subnet = NETWORKS.format(number)
        if subnet not in planned and not any(
            ipaddress.ip_network(f"{subnet}.0/24").overlaps(one) for one in used
        ):
            return subnet
    raise LabError("no network of 10.213.0.0/16 is free on this machine")


def _mirror() -> str:
    """Where this machine's own packages come from, if it is a Debian; those of all releases are there."""
    argv = [
        "apt-get",
        "indextargets",
        "--format",
        "$(ORIGIN) $(COMPONENT) $(REPO_URI)",
        "Created-By: Packages",
    ]
    try:
        lines = [line.split() for line in _output(argv).splitlines()]
    except (OSError, subprocess.CalledProcessError):
        return ""
    return next((line[2] for line in lines if len(line) == 3 and line[:2] == ["Debian", "main"]), "")


def _output(argv: list[str]) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


# --- keys ----------------------------------------------------------------------------------


def _keys(lab: Lab) -> None:
    """The user's key, and each host's own: made here, so that nobody has to trust a first connection."""
    ssh = Path(lab.folder) / ".ssh"
    ssh.mkdir(mode=0o700, exist_ok=True)
    _key(ssh / "id_ed25519", f"lab {lab.name}")
    lines = []
    for host in lab.hosts:
        keys = names.disk(lab.name, host.name) / "keys"
        keys.mkdir(parents=True, exist_ok=True)
        _key(keys / "ssh_host_ed25519_key", host.name)
        kind, key, _ = (keys / "ssh_host_ed25519_key.pub").read_text().split()
        lines.append(f"{host.address} {kind} {key}\n")
    (ssh / "known_hosts").write_text("".join(lines))
    for path in (ssh, *ssh.iterdir()):
        _give(path)


def _key(path: Path, comment: str) -> None:
    if not path.with_name(path.name + ".pub").exists():
        path.unlink(missing_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path], check=True)


def _give(path: Path) -> None:
    """To the person behind sudo, who runs everything else as themselves."""
    os.chown(path, int(os.environ.get("SUDO_UID", "0")), int(os.environ.get("SUDO_GID", "0")))


# --- the inventory -------------------------------------------------------------------------


def _inventory(lab: Lab) -> None:
    """The one file of the cluster's folder that depends on the addresses given out."""
    ssh = Path(lab.folder) / ".ssh"
    hosts = "".join(
        f"    {host.name}: # {RELEASES[host.release]}\n"
        f"      ansible_host: {host.address}\n"
        f"      cluster_cards: {host.cards}\n"
        for host in lab.hosts
    )
    quoted = json.dumps  # a JSON string is a YAML string
    text = (
        HEADER + "all:\n"
        f"  hosts:\n{hosts}"
        "  vars:\n"
        f"    ansible_user: {USER}\n"
        f"    ansible_ssh_private_key_file: {quoted(str(ssh / 'id_ed25519'))}\n"
        "    ansible_ssh_common_args: "
        + quoted(f"-o UserKnownHostsFile='\"{ssh / 'known_hosts'}\"' -o IdentitiesOnly=yes")
        + "\n"
        f"    cluster_cidr: {lab.subnet}.0/24\n"
        f"    package_sources_proxy: http://{lab.gateway}:{names.PORT}\n"
    )
    path = Path(lab.folder) / "hosts.yml"
    fresh = path.with_suffix(".tmp")
    fresh.write_text(text, "utf-8")
    _give(fresh)
    os.replace(fresh, path)
