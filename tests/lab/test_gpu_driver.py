"""From bare hosts to hosts with GPU driver and containers, Debian's own: 535 on Debian 12, 550 on 13.

The PCI tree is a stand-in with the ids of V100s, and so are the packages of NVIDIA's container toolkit. The
kernel that runs is this machine's, so the hosts are told for which one of Debian's the module is made; DKMS
makes it as anywhere, and it is never loaded. It takes minutes of both cores and 450 MB of packages, hence not
in ``make test-lab``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hosts import Lab, recap, sh
from standins import StandIns
from test_container_runtime import PINNED, toolkit

pytestmark = [pytest.mark.gpu_hosts, pytest.mark.timeout(3600)]

TAGS = ("--tags", "package_sources,gpu_driver")
DRIVERS = {"12": "535.", "13": "550."}


def kernel(lab: Lab, host: str) -> str:
    """The release of the newest kernel that the host's own distribution has headers of."""
    proxy = yaml.safe_load((lab.folder / "hosts.yml").read_text())["all"]["vars"]["package_sources_proxy"]
    script = (
        f"apt-get -q -o Acquire::http::Proxy={proxy} update >/dev/null; apt-cache depends linux-headers-amd64"
    )
    found = re.search(r"Depends: linux-headers-(\S+)", sh(lab, host, script))
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory, suffix: str) -> Iterator[Lab]:
    """A host of each release, with the ids of V100s on its bus, as far as the role can see."""
    with Lab(tmp_path_factory.mktemp("labs") / f"driver{suffix}") as lab:
        lab.up("--hosts", "2", "--release", "bookworm,trixie")
        place = lab.folder / "hosts.yml"
        document = yaml.safe_load(place.read_text())
        for host, variables in document["all"]["hosts"].items():
            variables.update(cluster_cards=2, gpu_driver_kernel=kernel(lab, host))
            for device in ("0000:06:00.0", "0000:07:00.0"):
                files = "echo 0x10de >vendor; echo 0x1db5 >device; echo 0x030200 >class"
                sh(lab, host, f"mkdir -p /opt/pci/{device}; cd /opt/pci/{device}; {files}")
        place.write_text(yaml.safe_dump(document))
        settings = lab.folder / "group_vars" / "all" / "cluster.yml"
        text = settings.read_text().replace(
            'cluster_card_model: ""', "cluster_card_model: Tesla V100-SXM2-32GB"
        )
        more = {
            "gpu_driver_source": "distribution",
            "gpu_hardware_pci": "/opt/pci",
            "cluster_driver": "580.173.02",
            "container_runtime_engine": "docker.io",
            "mpi_inside_image": True,  # for Open MPI differs between the two releases
        }
        settings.write_text(text + yaml.safe_dump(more))
        with StandIns(lab, toolkit(PINNED)):
            yield lab


def test_check_of_bare_hosts_with_cards_shows_what_would_be_installed(hosts: Lab) -> None:
    done = hosts.runner("provision", "--check", check=0, timeout=600)
    for host, branch in zip(hosts.hosts, DRIVERS.values(), strict=True):
        assert recap(done.stdout)[host][1:] == (0, 0)
        assert sh(hosts, host, "ls /etc/apt/preferences.d; cat /etc/apt/sources.list").split()[-1] == "main"
        assert f"+Pin: version {branch}*" in done.stdout
    assert "main contrib non-free non-free-firmware" in done.stdout
    for what in ("gpu_driver: Apt | Install the driver", "container_runtime: ", "gpu_persistence: "):
        assert what in done.stdout


def test_one_call_makes_the_hosts_ready_the_driver_built_and_held(hosts: Lab) -> None:
    done = hosts.runner("provision", check=0, timeout=3500)
    known = yaml.safe_load((hosts.folder / "hosts.yml").read_text())["all"]["hosts"]
    for host, branch in zip(hosts.hosts, DRIVERS.values(), strict=True):
        module = f"-k {known[host]['gpu_driver_kernel']} nvidia-current"
        version = sh(hosts, host, f"modinfo -F version {module}").strip()
        assert version.startswith(branch)
        assert sh(hosts, host, f"modinfo -F license {module}") == "NVIDIA\n"
        shown = sh(hosts, host, "dpkg-query -W -f '${Version}\\n' nvidia-kernel-dkms nvidia-smi libcuda1")
        assert {line.split("-")[0] for line in shown.splitlines()} == {version}
        held = set(sh(hosts, host, "apt-mark showhold").split())
        assert {
            "nvidia-kernel-dkms",
            "nvidia-smi",
            "libcuda1",
            "libnvidia-ml1",
            "nvidia-persistenced",
        } <= held
        assert "blacklist nouveau" in sh(hosts, host, "cat /etc/modprobe.d/*.conf")
        assert f"{host}: cluster_driver says 580.173.02, the driver is {version}" in done.stderr
        assert f"{host}: is a container, so the driver {version} is installed and not loaded" in done.stderr
        assert "nvidia" in sh(hosts, host, "docker info --format '{{json .Runtimes}}'")
        assert sh(hosts, host, "systemctl is-enabled nvidia-persistenced") == "enabled\n"


def test_second_run_changes_nothing(hosts: Lab) -> None:
    done = hosts.runner("provision", check=0, timeout=600)
    assert recap(done.stdout) == dict.fromkeys(hosts.hosts, (0, 0, 0))


def test_upgrades_leave_the_driver_alone(hosts: Lab) -> None:
    """Even where another source has a newer one: a stand-in repository with a package of that name."""
    host = hosts.hosts[0]
    sh(
        hosts,
        host,
        "mkdir -p /opt/newer/p/DEBIAN; cd /opt/newer;"
        "printf 'Package: nvidia-smi\\nVersion: 620.1-1\\nArchitecture: amd64\\n"
        "Maintainer: m <m@m.example>\\nDescription: stand-in\\n' >p/DEBIAN/control;"
        "dpkg-deb -b p nvidia-smi.deb >/dev/null;"
        "(cat p/DEBIAN/control; echo Filename: ./nvidia-smi.deb; echo Size: $(stat -c %s nvidia-smi.deb);"
        "echo SHA256: $(sha256sum nvidia-smi.deb | cut -d' ' -f1)) >Packages;"
        "echo 'deb [trusted=yes] file:/opt/newer ./' >/etc/apt/sources.list.d/newer.list; apt-get -q update",
    )
    policy = sh(hosts, host, "apt-cache policy nvidia-smi")
    assert "620.1-1" in policy
    assert re.search(r"Candidate: 535\.", policy)
    simulated = "apt-get -s {} dist-upgrade | grep -E '^Inst|kept back|^  nvidia' || true"
    assert "nvidia" not in sh(hosts, host, simulated.format("-o APT::Ignore-Hold=1"))  # the pin alone
    sh(hosts, host, "mv /etc/apt/preferences.d/runkit-gpu-driver /root")
    assert "Inst nvidia-smi" in sh(hosts, host, simulated.format("-o APT::Ignore-Hold=1"))
    assert "Inst nvidia-smi" not in sh(hosts, host, simulated.format(""))  # the hold alone
    sh(
        hosts,
        host,
        "mv /root/runkit-gpu-driver /etc/apt/preferences.d; rm /etc/apt/sources.list.d/newer.list",
    )
    sh(hosts, host, "apt-get -q update")


def test_what_dkms_did_not_build_is_told_and_made_up_for(hosts: Lab) -> None:
    first = hosts.hosts[0]
    known = yaml.safe_load((hosts.folder / "hosts.yml").read_text())["all"]["hosts"][first][
        "gpu_driver_kernel"
    ]
    sh(hosts, first, f"mkdir /root/kept; cp -a /lib/modules/{known}/updates/dkms/nvidia*.ko /root/kept")
    sh(
        hosts,
        first,
        f"dkms status | head -1; rm /lib/modules/{known}/updates/dkms/nvidia-current.ko; depmod {known}",
    )
    sh(hosts, first, "mkdir -p /root/dkms; mv /usr/sbin/dkms /root/dkms; ln -s /bin/false /usr/sbin/dkms")
    done = hosts.runner("provision", *TAGS, "--limit", first, check=1, timeout=600)
    assert f"{first}: gpu_driver: kernel {known} has no module nvidia, the packages are 535." in done.stderr
    assert "see dkms status" in done.stderr
    sh(
        hosts,
        first,
        f"mv /root/dkms/dkms /usr/sbin; cp -a /root/kept/* /lib/modules/{known}/updates/dkms; depmod {known}",
    )
    hosts.runner("provision", *TAGS, "--limit", first, check=0, timeout=600)


def test_a_driver_that_came_another_way_is_refused(hosts: Lab, tmp_path: Path) -> None:
    second = hosts.hosts[1]
    sh(hosts, second, "touch /usr/bin/nvidia-uninstall")
    done = hosts.runner("provision", *TAGS, "--limit", second, check=1, timeout=600)
    assert f"{second}: gpu_driver: a driver was installed by a .run file" in done.stderr
    sh(hosts, second, "rm /usr/bin/nvidia-uninstall")
