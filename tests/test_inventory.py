"""Clusters: what is accepted means the same to Ansible; what is wrong is one line that names file and key."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner import launch, looking
from runner.errors import UsageError
from runner.io import cluster_facts, inventory, ssh
from runner.model import Host, Placement, Start

ROOT = Path(__file__).resolve().parents[1]
CASES = Path(__file__).parent / "inventories"
BAD = sorted((CASES / "bad").iterdir())
GOOD = [*sorted((CASES / "good").iterdir()), ROOT / "inventory" / "v100x32"]
ANSIBLE = Path(sys.executable).parent
ENVIRONMENT = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}


@cache
def ansible_inventory(path: Path) -> Mapping[str, Any]:
    command = [str(ANSIBLE / "ansible-inventory"), "-i", str(path), "--list"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=True)
    found: Mapping[str, Any] = json.loads(done.stdout)
    return found


def no_ansible(path: Path) -> Mapping[str, Any]:
    raise AssertionError(f"Ansible was asked about {path}, which should have been refused before")


def refusal(path: Path) -> str:
    """What every reader says about a broken cluster: one line, and the same from each."""
    with pytest.raises(UsageError) as caught:
        inventory.outline(str(path))
    assert caught.value.status == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(ROOT / "inventory" / "local", tmp_path / "second"))


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.name)
def test_bad_cluster_is_refused_by_file_and_key(case: Path) -> None:
    message = refusal(case)
    for fragment in (case / "expected.txt").read_text().splitlines():
        assert fragment in message
    assert case.name in message


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.name)
def test_own_reading_agrees_with_ansible(case: Path) -> None:
    assert inventory.outline(str(case)) == inventory.load(str(case), ansible_inventory)


@pytest.mark.parametrize("case", [c for c in GOOD if c.name != "vaulted"], ids=lambda case: case.name)
def test_variables_of_hosts_are_those_that_ansible_sees(case: Path) -> None:
    seen = ansible_inventory(case)["_meta"]["hostvars"]
    for variables in seen.values():
        variables.pop("ansible_local", None)  # an empty fact that Ansible adds by itself
    assert inventory.hostvars(case, no_ansible) == seen


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("vault.yml", "$ANSIBLE_VAULT;1.1;AES256\n3833\n"),
        ("port.yml", "ansible_become_password: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  3833\n"),
    ],
)
def test_what_is_vaulted_is_asked_of_ansible(copy: Path, name: str, text: str) -> None:
    (copy / "group_vars" / "all" / name).write_text(text)
    told = {"localhost": {"ansible_port": 2222}}
    assert inventory.hostvars(copy, lambda _path: {"_meta": {"hostvars": told}}) == told


def test_hosts_cards_and_facts_as_written() -> None:
    cluster = inventory.load(str(CASES / "good" / "four_hosts"), ansible_inventory)
    assert cluster.hosts == (
        Host("zeta", "10.0.0.11", 8, "ssh"),
        Host("alpha", "10.0.0.12", 8, "ssh"),
        Host("beta", "10.0.0.13", 4, "ssh"),
        Host("gamma", "10.0.0.14", 1, "ssh"),
    )
    assert cluster.cards == 21
    assert (cluster.name, cluster.title) == ("four_hosts", "Four hosts, two kinds")
    assert cluster.card_model == "Tesla V100-SXM2-32GB"
    assert (cluster.python, cluster.mpirun) == ("/opt/python/bin/python3", "mpirun")
    assert cluster.agent_root == "/var/lib/runkit"


def test_over_ssh_the_hosts_own_python_is_the_default() -> None:
    cluster = inventory.load(str(CASES / "good" / "defaults_over_ssh"), ansible_inventory)
    assert (cluster.python, cluster.mpirun, cluster.title) == (
        "/usr/bin/python3",
        "mpirun",
        "defaults_over_ssh",
    )


def test_local_is_one_host_of_32_slots_in_this_environment() -> None:
    cluster = inventory.load("local", ansible_inventory)
    assert cluster.hosts == (Host("localhost", "localhost", 32, "local"),)
    assert cluster.card_model == ""
    assert cluster.python == sys.executable
    assert Path(cluster.mpirun).parent == ANSIBLE


def test_a_copy_of_the_folder_is_a_new_cluster(copy: Path) -> None:
    cluster, local = inventory.load(str(copy), ansible_inventory), inventory.outline("local")
    assert cluster.name == "second"
    assert cluster.hosts == local.hosts


def test_facts_of_a_network_as_written() -> None:
    cluster = inventory.load(str(CASES / "good" / "full"), ansible_inventory)
    assert (cluster.cidr, cluster.interface, cluster.fabric) == ("10.0.0.0/24", "ens1f0np0.100", "infiniband")
    assert (cluster.port, cluster.data_root, cluster.driver) == (31000, "/srv/data", "580")
    assert cluster.registry == "registry.example.org:5000/lab/"
    assert cluster.env == {
        "NCCL_IB_HCA": "=mlx5_0:1",
        "UCX_NET_DEVICES": "mlx5_0:1",
        "OMPI_MCA_btl_tcp_if_include": "10.0.0.0/24",
        "HOROVOD_FUSION_THRESHOLD": "67108864",
    }


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("UCX_TSL", "UCX_TLS"),
        ("UCX_NETDEVICES", "UCX_NET_DEVICES"),
        ("UCX_RNDV_SCHEMA", "UCX_RNDV_SCHEME"),
        ("OMPI_MCA_BTL", "OMPI_MCA_btl"),
        # What exists (ucx_info -f of UCX 1.13, ompi_info --all of Open MPI 5.0), though it is not set often.
        ("UCX_POSIX_FIFO_SIZE", None),
        ("UCX_DC_MLX5_TM_ENABLE", None),
        ("OMPI_MCA_fcoll", None),
        ("OMPI_MCA_pml_base_verbose", None),
        ("OMPI_MCA_btl_tcp_port_min_v6", None),
        ("OMP_NUM_THREADS", None),
        ("NVIDIA_TF32_OVERRIDE", None),
    ],
)
def test_a_slip_in_a_name_of_the_environment(name: str, nearest: str | None) -> None:
    said = cluster_facts.unfit("cluster_env", {name: "x"})
    assert said == (nearest and f"{name}: is one letter off; nearest: {nearest}")


def test_a_copy_of_the_four_hosts_under_another_name_is_another_cluster(tmp_path: Path) -> None:
    copied = shutil.copytree(ROOT / "inventory" / "v100x32", tmp_path / "v100x32b")
    original, copy = inventory.outline("v100x32"), inventory.load(str(copied), ansible_inventory)
    assert copy == dataclasses.replace(original, name="v100x32b", path=str(copied))
    assert [host.cards for host in copy.hosts] == [8, 8, 8, 8]


def test_every_variable_of_provision_and_bench_is_explained_in_the_example() -> None:
    """One that a later role brings must be explained there as well; what runkit states is not meant."""
    text = "".join(path.read_text() for path in (ROOT / "inventory" / "v100x32").rglob("*.yml"))
    plays = yaml.safe_load((ROOT / "playbooks" / "provision.yml").read_text())
    names: set[str] = set()
    for role in ("bench_agent", *(each["role"] for play in plays for each in play.get("roles", ()))):
        specs = yaml.safe_load((ROOT / "roles" / role / "meta" / "argument_specs.yml").read_text())
        names |= set(specs["argument_specs"]["main"]["options"])
    names -= {"bench_agent_run", "bench_agent_stage", "bench_agent_launch_host"}
    assert {"cluster_env", "package_sources_mirror", "bench_agent_root"} <= names
    assert {name for name in names if not re.search(rf"\b{name}\b", text)} == set()


def test_the_page_of_clusters_has_every_file_of_the_example() -> None:
    folder, page = ROOT / "inventory" / "v100x32", (ROOT / "docs" / "clusters.md").read_text()
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("*.yml")]
    assert [name for name in files if f"| `{name}` |" not in page] == []


@pytest.mark.parametrize("role", ["container_runtime", "package_sources"])
def test_the_page_of_provisioning_has_every_variable_of_a_role(role: str) -> None:
    page = (ROOT / "docs" / "provisioning.md").read_text()
    specs = yaml.safe_load((ROOT / "roles" / role / "meta" / "argument_specs.yml").read_text())
    options = specs["argument_specs"]["main"]["options"]
    assert [name for name in options if f"`{name}`" not in page] == []


def test_local_works_with_plain_ansible() -> None:
    command = [str(ANSIBLE / "ansible"), "-i", "inventory/local", "all", "-m", "ansible.builtin.ping"]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "localhost | SUCCESS" in done.stdout


def test_ansible_is_not_asked_about_a_cluster_that_is_refused() -> None:
    with pytest.raises(UsageError):
        inventory.load(str(CASES / "bad" / "misspelt_on_host"), no_ansible)


def test_hosts_that_only_ansible_sees_are_refused(copy: Path) -> None:
    listed = {"_meta": {"hostvars": {"localhost": {"cluster_cards": 1}, "intruder": {"cluster_cards": 1}}}}
    with pytest.raises(UsageError, match="intruder"):
        inventory.load(str(copy), lambda _path: listed)


def test_unknown_name_tells_the_nearest_and_where_it_looked() -> None:
    with pytest.raises(UsageError, match=r"-i locla: .*nearest: local; looked in .*inventory"):
        inventory.find("locla")


def test_a_file_is_not_a_cluster() -> None:
    with pytest.raises(UsageError, match="a cluster is a folder"):
        inventory.find(str(ROOT / "inventory" / "local" / "hosts.yml"))


def test_a_whole_vaulted_file_is_passed_over(copy: Path) -> None:
    (copy / "group_vars" / "all" / "vault.yml").write_text("$ANSIBLE_VAULT;1.1;AES256\n3833\n")
    assert inventory.outline(str(copy)).cards == 32


def test_links_are_refused(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.yml").write_text("cluster_title: elsewhere\n")
    (copy / "group_vars" / "all" / "linked.yml").symlink_to(tmp_path / "elsewhere.yml")
    assert "linked.yml: neither a file nor a folder" in refusal(copy)


def test_a_pipe_is_refused_and_not_waited_for(copy: Path) -> None:
    os.mkfifo(copy / "more.yml")
    assert "more.yml: neither a file nor a folder" in refusal(copy)


def test_a_huge_file_is_refused(copy: Path) -> None:
    (copy / "group_vars" / "all" / "huge.yml").write_bytes(b"#" * (2 << 20))
    assert "huge.yml: larger than 1 MiB" in refusal(copy)


def test_an_executable_file_is_refused_because_ansible_would_run_it(copy: Path) -> None:
    (copy / "hosts.yml").chmod(0o755)
    assert "hosts.yml: is executable" in refusal(copy)


@pytest.mark.parametrize("text", ["[" * 5000 + "]" * 5000, "a: " + "9" * 5000, "a: !%1b[31m b"])
def test_hostile_yaml_is_refused_without_escape_codes(copy: Path, text: str) -> None:
    (copy / "group_vars" / "all" / "hostile.yml").write_text(text)
    message = refusal(copy)
    assert "hostile.yml" in message
    assert message.isprintable()


def test_the_other_hosts_address_is_one_and_the_controllers_another() -> None:
    """Hostfile, rendezvous, agents' logins and doctor's peers by host_names_address; our ssh by the other."""
    cluster = inventory.load(str(CASES / "good" / "two_networks"), ansible_inventory)
    assert cluster.hosts == inventory.outline(str(CASES / "good" / "two_networks")).hosts
    assert [host.address for host in cluster.hosts] == ["10.0.0.1", "10.0.0.2"]
    assert [host.for_others for host in cluster.hosts] == ["10.1.0.1", "10.1.0.2"]
    placement = [Placement("gpu1", 8), Placement("gpu2", 8)]
    assert launch.mpirun(Start("c", placement, ["true"]), cluster).hostfile == (
        "10.1.0.1 slots=8\n10.1.0.2 slots=8\n"
    )
    assert (
        launch.between_hosts(placement, cluster, ["true"]).hostfile == "10.1.0.1 slots=8\n10.1.0.2 slots=8\n"
    )
    asked = looking.question(cluster.hosts[0], cluster.hosts, cluster, {"gpu1": {}, "gpu2": {}}, None).request
    assert asked["address"] == "10.1.0.1"
    assert asked["peers"] == [{"name": "gpu2", "address": "10.1.0.2", "port": 22}]
    assert ssh.command(cluster.hosts[1], {}, ["true"])[-2:] == ["10.0.0.2", "true"]
