"""Role rdma on real hosts without a device, one of each release; devices, GPUs and an OFED are stand-ins.

The trees of devices are files as the kernel has them in /sys/class/infiniband and /sys/bus/pci/devices, and
the OFED is a program that says what ofed_info says.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml
from hosts import Lab, recap, sh
from standins import DOCA, Package, StandIns

pytestmark = pytest.mark.gpu_hosts

TAGS = ("--tags", "package_sources,rdma")
PORT = "/root/rdma/mlx5_0/ports/1"
# As many V100 of 16 GB in SXM2 as a lab's host has slots, and a ConnectX-5: vendor, device, class on the bus.
BUS = {
    **{f"0000:{number:02x}:00.0": ("0x10de", "0x1db1", "0x030200") for number in range(32)},
    "0000:80:00.0": ("0x15b3", "0x1017", "0x020700"),
}
V100 = {"cluster_card_model": "Tesla V100-SXM2-16GB", "gpu_hardware_pci": "/root/pci"}


def tree(files: dict[str, str]) -> str:
    """The script that writes files."""
    return "\n".join(f"mkdir -p $(dirname {path}); echo '{text}' >{path}" for path, text in files.items())


def bus() -> dict[str, str]:
    """The files of the bus."""
    names = ("vendor", "device", "class")
    return {
        f"/root/pci/{address}/{name}": value
        for address, values in BUS.items()
        for name, value in zip(names, values, strict=True)
    }


def port(state: str, phys: str, layer: str) -> str:
    return tree({f"{PORT}/state": state, f"{PORT}/phys_state": phys, f"{PORT}/link_layer": layer})


@contextmanager
def stated(lab: Lab, **variables: object) -> Iterator[None]:
    """Meanwhile the cluster is one of InfiniBand, and what else is stated of it."""
    path = lab.folder / "group_vars" / "all" / "cluster.yml"
    before = path.read_text()
    path.write_text(yaml.safe_dump({**yaml.safe_load(before), "cluster_fabric": "infiniband", **variables}))
    try:
        yield
    finally:
        path.write_text(before)


def test_check_shows_what_would_be_installed(bare: Lab) -> None:
    with stated(bare):
        done = bare.runner("provision", "--check", *TAGS, check=0, timeout=290)
    assert "rdma: Stack | Install the distribution's packages for RDMA" in done.stdout
    assert "no RDMA device is on the host, cluster_fabric says infiniband" in done.stderr
    for host in bare.hosts:
        assert bare.sudo(host, "command -v ibv_devinfo").stdout == ""


def test_the_packages_are_installed_and_run(bare: Lab) -> None:
    first, second = bare.hosts
    with stated(bare, rdma_subnet_manager=True):
        done = bare.runner("provision", *TAGS, check=0, timeout=290)
        again = bare.runner("provision", *TAGS, check=0, timeout=290)
    assert all(counts[0] > 0 for counts in recap(done.stdout).values())
    assert f"{first}, {second}: no RDMA device is on the host" in done.stderr
    assert recap(again.stdout) == dict.fromkeys(bare.hosts, (0, 0, 0))
    for host in bare.hosts:
        said = bare.sudo(host, "ibv_devinfo")
        # With a kernel that has no modules for RDMA, the second.
        none = ("No IB devices found", "Failed to get IB devices list: Function not implemented")
        assert said.stderr.strip() in none
        for program in ("ibstat", "ib_write_bw", "rping", "mstconfig"):
            assert sh(bare, host, f"command -v {program}")
    # The subnet manager is the launch host's, and without a device it does not run.
    assert bare.sudo(first, "systemctl is-enabled opensm").stdout == "enabled\n"
    assert bare.sudo(second, "command -v opensm").stdout == ""


def test_links_are_verified_where_there_is_a_device(bare: Lab) -> None:
    first, second = bare.hosts
    sh(bare, first, port("4: ACTIVE", "5: LinkUp", "InfiniBand"))
    sh(bare, second, port("1: DOWN", "2: Polling", "InfiniBand"))
    with stated(bare, rdma_devices="/root/rdma"):
        done = bare.runner("provision", "--tags", "rdma", check=1, timeout=290)
        assert recap(done.stdout) == {first: (0, 0, 0), second: (0, 0, 1)}
        (said,) = [line for line in done.stderr.splitlines() if line.startswith("runkit: ")]
        assert said.startswith(f"runkit: {second}: rdma: no RDMA port is active: mlx5_0/1 is DOWN, Polling: ")
        sh(bare, second, port("4: ACTIVE", "5: LinkUp", "Ethernet"))
        done = bare.runner("provision", "--tags", "rdma", check=1, timeout=290)
        assert "no active port has link layer InfiniBand: mlx5_0/1 has Ethernet" in done.stderr


def test_peer_memory_takes_an_ofed_that_stays_as_it_is(bare: Lab) -> None:
    first, second = bare.hosts
    for host in bare.hosts:
        sh(bare, host, tree(bus()))
    ofed = "/usr/bin/ofed_info"
    sh(bare, second, f"printf '#!/bin/sh\\necho MLNX_OFED_LINUX-24.10-3.2.5.0:\\n' >{ofed}; chmod 755 {ofed}")
    conf = "/etc/modules-load.d/nvidia-peermem.conf"
    with stated(bare, **V100):
        done = bare.runner("provision", "--tags", "rdma", check=0, timeout=290)
        again = bare.runner("provision", "--tags", "rdma", check=0, timeout=290)
    assert f"{second}: MLNX_OFED_LINUX-24.10-3.2.5.0 is there, and left as it is" in done.stderr
    assert (
        f"{first}: volta with the proprietary driver reach the network card only by nvidia-peermem"
        in done.stderr
    )
    assert bare.sudo(first, f"test -e {conf}").returncode == 1
    assert sh(bare, second, f"tail -n 1 {conf}") == "nvidia-peermem\n"
    assert recap(done.stdout) == {first: (0, 0, 0), second: (1, 0, 0)}
    assert recap(again.stdout) == dict.fromkeys(bare.hosts, (0, 0, 0))


def test_doca_is_installed_and_asks_for_a_reboot(bare: Lab) -> None:
    """A stand-in of the same name, with the headers that its modules would be built against."""
    first = bare.hosts[0]
    headers = f"linux-headers-{sh(bare, first, 'uname -r').strip()}"
    ofed = {"/usr/bin/ofed_info": "#!/bin/sh\necho OFED-internal-25.10-1.2.3:\n"}
    jealous = Package("doca-ofed", "1", repository="doca", files=ofed, fields="Conflicts: rdma-core")
    rdma = ("provision", *TAGS, "--limit", first)
    packages = [Package(headers, "1", repository="doca"), jealous]
    with stated(bare, rdma_stack="doca", **V100), StandIns(bare, packages) as repository:
        done = bare.runner(*rdma, check=1, timeout=290)
        assert f"runkit: {first}: rdma: doca-ofed would remove packages of the distribution" in done.stderr
        assert sh(bare, first, "command -v ibv_devinfo")

        repository.packages = [packages[0], jealous._replace(version="2", fields="")]
        repository.publish()
        sh(bare, first, "apt-get update -qq")
        done = bare.runner(*rdma, check=0, timeout=290)
        again = bare.runner(*rdma, check=0, timeout=290)
    assert any(f"/doca/{DOCA}/" in path for path in repository.requests)
    assert sh(bare, first, "ofed_info -s") == "OFED-internal-25.10-1.2.3:\n"
    assert sh(bare, first, "cat /run/reboot-required.pkgs") == "doca-ofed\n"
    assert sh(bare, first, "tail -n 1 /etc/modules-load.d/nvidia-peermem.conf") == "nvidia-peermem\n"
    assert "is there, and left as it is" not in done.stderr + again.stderr
    assert recap(again.stdout) == {first: (0, 0, 0)}
