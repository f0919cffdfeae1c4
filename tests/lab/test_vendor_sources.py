"""Packages on real hosts without a way to the internet: what a site's mirror brings, and what goes wrong.

Two hosts, one of each release. The vendors' repositories are stand-ins, see standins.py. ``provision`` is the
real one, with a playbook of the roles that packages come through. What goes wrong is told in one sentence.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hosts import ROOT, Lab, recap
from standins import NVIDIA, Key, Package, StandIns

pytestmark = pytest.mark.gpu_hosts
PASSWORD = "hush-9-hush"
FAILS = {"DEBIAN/postinst": "#!/bin/sh\n[ ! -e /root/refuse ] || exit 1\n"}
PACKAGES = [
    Package("cuda-drivers", "580.95.05-1"),
    Package("cuda-drivers", "590.44.01-1"),
    Package("half-way", "1.0-1", files=FAILS),
]
PLAYBOOK = """
- name: Hosts
  hosts: all
  gather_facts: false
  become: true
  strategy: linear
  roles:
    - {role: cluster, tags: always}
    - {role: bootstrap, tags: [always, bootstrap]}

- name: Packages
  hosts: all
  gather_facts: false
  become: true
  module_defaults:
    ansible.builtin.apt: {lock_timeout: "{{ package_sources_lock_timeout }}"}
  roles:
    - {role: cluster, tags: always}
    - {role: package_sources, tags: package_sources}
    - {role: vendor, tags: vendor}
"""
# A role, for runkit's --tags are those of roles.
VENDOR = """
- name: Cuda
  ansible.builtin.import_role: {name: vendor_sources}
  vars: {vendor_sources_repository: cuda}
- name: Install
  ansible.builtin.apt:
    name: "{{ vendor_wanted }}"
"""

SPECIFICATION = """
argument_specs:
  main:
    options:
      vendor_wanted: {type: str, default: "cuda-drivers=580.95.05-1"}
"""
FILES = {
    "playbooks/provision.yml": PLAYBOOK,
    "roles/vendor/tasks/main.yml": VENDOR,
    "roles/vendor/defaults/main.yml": 'vendor_wanted: "cuda-drivers=580.95.05-1"\n',
    "roles/vendor/meta/argument_specs.yml": SPECIFICATION,
}


class Site:
    """The lab, its mirror, and the real ``provision`` with the playbook above."""

    def __init__(self, lab: Lab, mirror: StandIns, tree: Path) -> None:
        self.lab, self.mirror, self.tree = lab, mirror, tree
        self.first, self.second = lab.hosts
        shutil.copytree(ROOT / "runner", tree / "runner")
        shutil.copytree(ROOT / "roles", tree / "roles")
        shutil.copytree(ROOT / "playbooks", tree / "playbooks")
        shutil.copy(ROOT / "ansible.cfg", tree)
        for name, text in FILES.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text)

    @property
    def proxy(self) -> str:
        """The lab's own, which has a way out that its hosts have not; it serves as a mirror too."""
        hosts = yaml.safe_load((self.lab.folder / "hosts.yml").read_text())
        return str(hosts["all"]["vars"]["package_sources_proxy"])

    def state(self, host: str, **variables: object) -> None:
        """Put them into the inventory for one host; none takes them out again."""
        path = self.lab.folder / "host_vars" / f"{host}.yml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(variables)) if variables else path.unlink(missing_ok=True)

    def provision(self, *words: str) -> tuple[dict[str, str], dict[str, int], str]:
        """The sentences of hosts that fail, how much changed on those that do not, and all output."""
        done = self.lab.runner("provision", *words, PYTHONPATH=str(self.tree), timeout=400)
        said = [line.split(": ", 2)[1:] for line in done.stderr.splitlines() if line.startswith("runkit: ")]
        assert len({host for host, _ in said}) == len(said), done.stderr
        ended = {host: counts[0] for host, counts in recap(done.stdout).items() if counts[2] == 0}
        assert set(ended) | {host for host, _ in said} == set(self.lab.hosts), done.stdout + done.stderr
        return dict(said), ended, done.stdout + done.stderr

    def sh(self, host: str, script: str) -> str:
        done = self.lab.sudo(host, script)
        assert done.returncode == 0, f"{host}: {script}: {done.stderr}"
        return done.stdout

    def both(self, script: str) -> None:
        for host in self.lab.hosts:
            self.sh(host, script)

    def works(self, *words: str) -> None:
        """Nothing stands in the way any more."""
        failed, ended, output = self.provision(*words)
        assert not failed, output
        assert set(ended) == set(self.lab.hosts)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, suffix: str) -> Iterator[Site]:
    with Lab(tmp_path_factory.mktemp("labs") / f"vend{suffix}") as lab:
        lab.up("--hosts", "2", "--release", "bookworm,trixie")
        with StandIns(lab, PACKAGES) as mirror:
            yield Site(lab, mirror, tmp_path_factory.mktemp("tree"))


FORGET = "rm -f /var/lib/apt/lists/*nvidia*"  # so that it is read anew


def test_a_key_that_is_not_pinned_is_not_put_in_place_and_other_hosts_go_on(site: Site) -> None:
    for host in site.lab.hosts:
        assert site.sh(host, "ip route show default") == ""
    address = site.sh(site.second, "apt-get indextargets --format '$(SITE)'").split()[0]
    server = "/".join(address.split("/")[:3])  # the distribution's: scheme and host
    site.sh(site.second, f"echo 'deb http://{NVIDIA}/debian13/x86_64/ /' > /etc/apt/sources.list.d/cuda.list")
    # The first has a proxy for the distribution's packages, the second a mirror.
    site.state(site.first, vendor_sources_repositories={"cuda": {"fingerprints": ["0" * 40]}})
    mirror = f"{site.proxy}/{server.partition('://')[2]}"
    site.state(site.second, package_sources_proxy="", package_sources_mirror=mirror)
    failed, ended, output = site.provision()
    assert list(failed) == [site.first], output
    assert f"Failed to fetch http://{NVIDIA}" in output, output  # somebody else's, and so not refused
    assert f"its fingerprint is {site.mirror.key.fingerprint}, and {'0' * 40} is pinned" in failed[site.first]
    assert site.sh(site.first, "ls /etc/apt/keyrings /etc/apt/sources.list.d | grep runkit || true") == ""
    assert ended[site.second] > 0
    assert site.sh(site.second, "dpkg-query -Wf '${Version}' cuda-drivers") == "580.95.05-1"  # not the newest
    assert site.sh(site.second, "cat /etc/apt/sources.list.d/cuda.list") == ""
    assert server not in site.sh(site.second, "apt-get indextargets")

    site.state(site.first)
    site.works("--tags", "vendor")


def test_where_all_is_there_nothing_is_fetched_or_changed(site: Site) -> None:
    site.mirror.requests.clear()
    _, ended, output = site.provision()
    assert ended == dict.fromkeys(site.lab.hosts, 0), output
    # The right key is there. The second host, where a list could not be read, asks again what there is.
    assert [path for path in site.mirror.requests if not path.endswith("/InRelease")] == []


def test_signatures(site: Site) -> None:
    folders = {site.first: f"{NVIDIA}/debian12/x86_64", site.second: f"{NVIDIA}/debian13/x86_64"}
    old, other = Key(born=-200000, expires=-100000), Key()
    try:
        # By a key that has expired since, which apt of Debian 13 lets pass; and too long ago.
        site.both(FORGET)
        site.mirror.index("cuda", folders[site.first], key=old)
        site.mirror.write(f"{folders[site.first]}/3bf863cc.pub", old.public)
        site.mirror.index("cuda", folders[site.second], valid_for=-7200)
        site.state(site.first, vendor_sources_repositories={"cuda": {"fingerprints": [old.fingerprint]}})
        failed, _, output = site.provision("--tags", "vendor")
        assert "the key that signed it has expired" in failed[site.first], output
        assert "is expired" in failed[site.second], output
        assert "bring the mirror up to date" in failed[site.second]

        # By somebody else; and an old key is still in place, whose successor is pinned now.
        site.mirror.index("cuda", folders[site.second], key=other)
        site.mirror.publish_key()
        site.mirror.index("cuda", folders[site.first])
        site.state(site.first)
        failed, ended, output = site.provision("--tags", "vendor")
        assert list(failed) == [site.second], output
        assert "signed by another key than the one that is pinned" in failed[site.second]
        assert ended[site.first] > 0
    finally:
        for key in (old, other):
            key.close()
        site.state(site.first)
        site.mirror.publish()
    site.works("--tags", "vendor")


def test_packages_that_are_not_there(site: Site) -> None:
    site.state(site.first, vendor_wanted="cuda-drivers=999-1")
    site.state(site.second, vendor_wanted="no-such-package")
    failed, _, output = site.provision("--tags", "vendor")
    for host, name in ((site.first, "cuda-drivers"), (site.second, "no-such-package")):
        assert name in failed[host], output
        assert "no source of packages of the host has it; a mirror needs it too" in failed[host]
        site.state(host)


LOCK = """cat > /root/lock.py <<'X'
import fcntl, time
lock = open("/var/lib/dpkg/lock-frontend", "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
time.sleep(600)
X
systemd-run --quiet --unit=locker python3 /root/lock.py; sleep 1
"""


FETCH = """python3 -c 'import urllib.request as u; u.urlretrieve("{}", "/root/it.deb")'; """


def test_a_held_lock_and_packages_that_are_half_installed(site: Site) -> None:
    for host in site.lab.hosts:
        site.state(host, package_sources_lock_timeout=1)
    site.sh(site.first, LOCK)
    deb = f"{site.mirror.url}/{NVIDIA}/debian13/x86_64/half-way_1.0-1_amd64.deb"
    site.sh(
        site.second, FETCH.format(deb) + "touch /root/refuse; dpkg -i /root/it.deb >/dev/null 2>&1 || true"
    )
    failed, _, output = site.provision("--tags", "package_sources")
    assert re.search(
        r"package_sources: python3 \(process \d+\) has had the packages locked for 1 s", failed[site.first]
    )
    assert "half-way is half installed and cannot be finished: " in failed[site.second], output
    assert "dpkg --configure -a" in failed[site.second]

    # The lock is let go; what kept the package is mended, and provision finishes it.
    site.sh(site.first, "systemctl stop locker")
    site.sh(site.second, "rm /root/refuse")
    failed, _, output = site.provision("--tags", "package_sources")
    assert not failed, output
    assert f"{site.second}: the installation of half-way was broken off; it is finished" in output
    assert site.sh(site.second, "dpkg --audit") == ""
    for host in site.lab.hosts:
        site.state(host)


FULL = "cd /var/cache/apt; mkdir -p archives; mount -t tmpfs -o size=8m tmpfs archives"


def test_a_full_disk_and_no_route(site: Site) -> None:
    site.sh(site.first, FULL)
    nobody = site.mirror.address.rpartition(".")[0] + ".250"
    mirror = f"http://{nobody}:8080"
    site.state(
        site.second, vendor_sources_mirror=mirror, package_sources_no_proxy=[site.mirror.address, nobody]
    )
    failed, _, output = site.provision()
    assert re.search(
        r"[78] MiB are free in /var/cache/apt/archives: 300 MiB must be free", failed[site.first]
    ), output
    assert mirror in failed[site.second], output
    assert "the host does not reach it; state package_sources_proxy" in failed[site.second]
    site.sh(site.first, "umount /var/cache/apt/archives")
    site.state(site.second)


def test_a_mirror_that_is_gone(site: Site) -> None:
    site.both("rm -f /etc/apt/keyrings/runkit-cuda.asc")
    site.mirror.end()
    try:
        failed, _, output = site.provision("--tags", "vendor")
    finally:
        site.mirror.serve()
    for host in site.lab.hosts:
        assert "cannot be fetched: Connection refused" in failed[host], output
        assert "for a host without a way to the internet vendor_sources_mirror" in failed[host]
    site.works("--tags", "vendor")


@contextlib.contextmanager
def watched(lab: Lab) -> Iterator[list[str]]:
    """Meanwhile all command lines of this machine, and so of the lab's hosts, are looked through."""
    seen: list[str] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    if PASSWORD.encode() in (words := path.read_bytes()):
                        seen.append(words.decode("utf-8", "replace"))
            done.wait(0.02)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


def test_passwords_are_seen_nowhere(site: Site) -> None:
    secret = f"//runkit:{PASSWORD}@"
    right = {
        "package_sources_proxy": site.proxy.replace("//", secret),
        "vendor_sources_mirror": site.mirror.url.replace("//", secret),
    }
    site.state(site.first, **right)
    wrong = right["vendor_sources_mirror"].replace(f":{site.mirror.port}", ":9")
    site.state(site.second, **{**right, "vendor_sources_mirror": wrong})
    site.both("rm -f /etc/apt/keyrings/runkit-cuda.asc; rm -rf /var/lib/apt/lists/*Release")
    with watched(site.lab) as seen:
        failed, _, output = site.provision()
    assert list(failed) == [site.second], output
    assert ":9/" in failed[site.second]
    assert seen == []
    log = (site.lab.work / "runs" / f"provision-{site.lab.name}.log").read_text()
    assert PASSWORD not in output + log
    for host in site.lab.hosts:
        found = site.sh(
            host, f"grep -rlF {PASSWORD} /etc /var /home /root /tmp /run 2>/dev/null || true"
        ).split()
        assert set(found) <= {
            "/etc/apt/apt.conf.d/80runkit-proxy",
            "/etc/apt/sources.list.d/runkit-cuda.sources",
        }
        assert {site.sh(host, f"stat -c %a {path}") for path in found} == {"600\n"}
        site.state(host)
