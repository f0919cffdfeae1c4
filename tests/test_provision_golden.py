"""``provision --check`` on systems and cards that no test machine has, against facts of our own.

playbooks/provision.yml runs as it is; the hosts are stand-ins, tests/provisioning/ says how.
golden/HOST.yml holds what each would be told to do. Where a change is meant: RUNKIT_GOLDEN=write makes them
anew, and the diff is to be read. What must hold whatever the golden files say stands below, as NVIDIA's and
Docker's documents have it. All hosts take minutes: the suite has those of FEW, `make test-provision` has all.
"""

from __future__ import annotations

import os
import re

import pytest
from provisioning.facts import HERE, described, provisioned
from provisioning.host import UNSAID
from provisioning.rehearsal import ELSEWHERE, golden, rehearse
from provisioning.said import Facts, Said

pytestmark = pytest.mark.timeout(1500)

ALL = described()
# One at least of every system, of every kind of card, and of what is refused.
FEW = (
    *("debian12-v100x8-proxy", "debian13-v100x8", "ubuntu2204-dgx2", "ubuntu2404-h100x8", "ubuntu2404-cpu"),
    *("rocky9-a100x8", "rhel9-t4x2", "rhel10-h100x8", "rocky10-v100x8", "alma9-v100x8-proxy"),
    *("rocky9-h100x8-mirror", "ubuntu2204-v100x8-doca", "ubuntu2204-v100x8-620", "ubuntu2204-v100x8-open"),
    *("debian12-v100x8-run-file", "debian11", "ubuntu2004", "rocky8", "centos7", "centos6"),
)
HOSTS = ALL if os.environ.get("RUNKIT_GOLDEN") else {name: ALL[name] for name in FEW}
GOLDEN = HERE / "golden"
SERVED = sorted(name for name, facts in HOSTS.items() if "refused" not in facts)
REFUSED = sorted(set(HOSTS) - set(SERVED))
GPUS = [name for name in SERVED if HOSTS[name]["model"]]


@pytest.fixture(scope="session")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Said]:
    return rehearse(HOSTS, tmp_path_factory.mktemp("provision"))


@pytest.mark.parametrize("name", sorted(HOSTS))
def test_every_host_is_told_what_the_golden_file_says(name: str, said: dict[str, Said]) -> None:
    text, path = golden(said[name]), GOLDEN / f"{name}.yml"
    if os.environ.get("RUNKIT_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()


def test_no_golden_file_is_of_a_host_that_is_gone() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(ALL)


@pytest.mark.parametrize("name", SERVED)
def test_check_of_a_bare_host_completes(name: str, said: dict[str, Said]) -> None:
    assert said[name].failures == []
    assert said[name].changes != []


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_why(name: str, said: dict[str, Said]) -> None:
    failures = said[name].failures
    assert len(failures) == 1, failures
    assert re.search(HOSTS[name]["refused"], failures[0]), failures[0]


def test_hosts_were_asked_nothing_that_their_facts_do_not_say(said: dict[str, Said]) -> None:
    asked = [(name, each["task"]) for name in HOSTS for each in said[name].events if each.get("rc") == UNSAID]
    assert asked == []


# --- what holds whatever the golden files say -------------------------------------------------

# Driver packages for Volta, and for the architectures after it, by NVIDIA's driver installation guide and the
# archives: the branch 580, but for Debian 13, whose own is 550 and where NVIDIA's repository has no 580.
UBUNTU = (
    {
        "linux-modules-nvidia-580-server-generic",
        "nvidia-headless-no-dkms-580-server",
        "nvidia-utils-580-server",
    },
    {
        "linux-modules-nvidia-580-server-open-generic",
        "nvidia-headless-no-dkms-580-server-open",
        "nvidia-utils-580-server",
    },
)
EL9 = ({"nvidia-driver-cuda", "kmod-nvidia-latest-dkms"}, {"nvidia-driver-cuda", "kmod-nvidia-open-dkms"})
EL10 = tuple({f"{name}-580.*" for name in names} for names in EL9)
DRIVERS = {
    "debian12": ({"nvidia-driver-pinning-580", "cuda-drivers"}, {"nvidia-driver-pinning-580", "nvidia-open"}),
    "debian13": ({"nvidia-kernel-dkms"}, {"nvidia-open-kernel-dkms"}),
    "ubuntu2204": UBUNTU,
    "ubuntu2404": UBUNTU,
    **dict.fromkeys(("rocky9", "alma9", "rhel9"), EL9),
    **dict.fromkeys(("rocky10", "rhel10"), EL10),
}
# Driver packages, but for those without a module or a branch of their own.
DRIVER = re.compile(
    r"(?!nvidia-(?:container|persistenced|smi|fabric))(?:linux-modules-)?(?:kmod-)?(?:nvidia|cuda)-"
)
TOOLKIT = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
# Where a repository begins -> the fingerprint of its key, as vendors and those who pin them publish it.
KEYS = {
    "developer.download.nvidia.com/compute/cuda/repos/debian13/": "02182E60104FCDC26EAE1B8597A5D4CB8793F200",
    "developer.download.nvidia.com/compute/cuda/repos/debian12/": "EB693B3035CD5710E231E123A4B469963BF863CC",
    "developer.download.nvidia.com/compute/cuda/repos/ubuntu": "EB693B3035CD5710E231E123A4B469963BF863CC",
    "developer.download.nvidia.com/compute/cuda/repos/rhel": "610C7B14E068A878070DA4E99CD0A493D42D0685",
    "nvidia.github.io/libnvidia-container/stable/": "C95B321B61E88C1809C4F759DDCAE044F796ECB0",
    "download.docker.com/linux/debian/": "9DC858229FC7DD38854AE2D88D81803C0EBFCD88",
    "download.docker.com/linux/ubuntu/": "9DC858229FC7DD38854AE2D88D81803C0EBFCD88",
    "download.docker.com/linux/rhel/": "060A61C51B558A7F742B77AAC52FEB6B621E9F35",
    "download.docker.com/linux/centos/": "060A61C51B558A7F742B77AAC52FEB6B621E9F35",
}
ADDRESS = r"(?m)^(?:URIs: |baseurl=)(\S+)"
SIGNED = r"(?m)^(?:Signed-By: |gpgkey=file://)(\S+)"


def is_volta(name: str) -> bool:
    return "V100" in HOSTS[name]["model"]


def has_nvswitch(name: str) -> bool:
    return any(triple.startswith("0x068000 0x10de ") for triple in HOSTS[name]["pci"])


def stated(name: str, variable: str) -> str:
    return str(HOSTS[name].get("vars", {}).get(variable, ""))


def branch(name: str) -> str:
    """Stated or 580; where NVIDIA's repository begins after it, 620, which is maintained until 2029."""
    vendor_of_debian13 = HOSTS[name]["system"] == "debian13" and stated(name, "gpu_driver_source") == "vendor"
    return stated(name, "gpu_driver_branch") or ("620" if vendor_of_debian13 else "580")


@pytest.mark.parametrize("name", GPUS)
def test_the_driver_is_the_one_that_knows_the_cards(name: str, said: dict[str, Said]) -> None:
    wanted = DRIVERS[HOSTS[name]["system"]][0 if is_volta(name) else 1]
    if is_volta(name) and "ubuntu" in name and stated(name, "rdma_stack") == "doca":
        wanted = {"nvidia-driver-pinning-580", "cuda-drivers"}  # Ubuntu's own module is built without OFED
    elif stated(name, "gpu_driver_source") == "vendor":
        wanted = {f"nvidia-driver-pinning-{branch(name)}", "nvidia-open"}
    assert {each for each in said[name].packages if DRIVER.match(each)} == wanted
    if wanted in EL9:
        stream = "nvidia-driver:580-dkms" if is_volta(name) else "nvidia-driver:580-open"
        assert any(each.endswith(f" module enable {stream}") for each in said[name].commands)


@pytest.mark.parametrize("name", [name for name in GPUS if is_volta(name)])
def test_volta_never_gets_the_open_module(name: str, said: dict[str, Said]) -> None:
    told = [*said[name].packages, *said[name].commands]
    assert [each for each in told if re.search(r"nvidia.*\bopen\b", each)] == []


@pytest.mark.parametrize("name", GPUS)
def test_a_fabric_manager_goes_with_nvswitches_alone(name: str, said: dict[str, Said]) -> None:
    archive = "ubuntu" in name and not stated(name, "gpu_driver_source")
    package = "nvidia-fabricmanager" + (f"-{branch(name)}" if archive else "")
    equals = "-" if HOSTS[name]["facts"]["pkg_mgr"] == "dnf" else "="
    found = [each for each in said[name].packages if "fabric" in each]
    assert found == ([f"{package}{equals}{branch(name)}.*"] if has_nvswitch(name) else [])


@pytest.mark.parametrize("name", GPUS)
def test_keys_are_those_of_the_repositories(name: str, said: dict[str, Said]) -> None:
    files = said[name].files
    found = 0
    for path, text in files.items():
        if re.search(r"/runkit-\S+\.(?:sources|repo)$", path) and "doca" not in path:
            url, key = (re.search(pattern, text)[1] for pattern in (ADDRESS, SIGNED))  # type: ignore[index]
            plain = url.removeprefix("http://mirror.example/vendors/").removeprefix("https://")
            begin = next(begin for begin in KEYS if plain.startswith(begin))
            assert files[key] == f"the key {KEYS[begin]}\n"
            found += 1
    assert found > 0


@pytest.mark.parametrize("name", GPUS)
def test_the_toolkit_is_of_one_version_and_stays(name: str, said: dict[str, Said]) -> None:
    version = re.compile(rf"(?:{'|'.join(TOOLKIT)})[=-](\d\S*)")
    found = [match for each in said[name].packages if (match := version.fullmatch(each))]
    assert len(found) == 4
    assert len({match[1] for match in found}) == 1
    kept = "".join(str(each["args"]) for each in said[name].changes if each["action"] == "dpkg_selections")
    kept += said[name].files.get("/etc/dnf/plugins/versionlock.list", "")
    assert [each for each in TOOLKIT if each not in kept] == []


@pytest.mark.parametrize("name", GPUS)
def test_the_engine_knows_cdi(name: str, said: dict[str, Said]) -> None:
    """Debian 12's own, 20.10, does not; Debian 13's, 26.1, does; Enterprise Linux has none."""
    own = "docker.io" if HOSTS[name]["system"] == "debian13" else "docker-ce"
    engine = stated(name, "container_runtime_engine") or own
    assert {"docker.io", "docker-ce", "podman"} & set(said[name].packages) == {engine}


@pytest.mark.parametrize("name", GPUS)
def test_peermem_is_for_ofed_and_the_proprietary_module(name: str, said: dict[str, Said]) -> None:
    loads = "/etc/modules-load.d/nvidia-peermem.conf" in said[name].files
    assert loads == (is_volta(name) and stated(name, "rdma_stack") == "doca")


@pytest.mark.parametrize("name", [name for name in GPUS if stated(name, "vendor_sources_mirror")])
def test_a_mirror_is_all_that_is_asked(name: str, said: dict[str, Said]) -> None:
    lines = [line for text in said[name].files.values() for line in text.splitlines() if "://" in line]
    alone = ("#", "mirrorlist=", "metalink=")  # each replacement is shown alone, and another is for these
    asked = [line for line in lines if not line.startswith(alone) and "file://" not in line]
    assert [line for line in asked if "http://mirror.example/" not in line] == []
    assert len(asked) >= 3


# --- a second run ----------------------------------------------------------------------------

AGAIN = ["ubuntu2404-h100x8", "rocky9-a100x8", "debian13-v100x8", "rocky10-v100x8"]
again = pytest.mark.skipif("RUNKIT_GOLDEN" not in os.environ, reason="minutes more: make test-provision")


@pytest.fixture(scope="session")
def ready(said: dict[str, Said], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Facts]:
    """Hosts to which twice was done what --check says: the second time what it could not foresee."""
    facts = {name: provisioned(HOSTS[name], said[name]) for name in AGAIN}
    second = rehearse(facts, tmp_path_factory.mktemp("second"))
    return {name: provisioned(facts[name], second[name]) for name in AGAIN}


@again
def test_nothing_is_left_to_do_on_hosts_that_were_provisioned(
    ready: dict[str, Facts], tmp_path_factory: pytest.TempPathFactory
) -> None:
    third = rehearse(ready, tmp_path_factory.mktemp("third"))
    for name in AGAIN:
        assert third[name].changes == []
        assert third[name].failures == []


@again
def test_dnf_leaves_the_driver_at_the_version_that_its_fabric_manager_has(ready: dict[str, Facts]) -> None:
    locked = ready["rocky9-a100x8"]["files"]["/etc/dnf/plugins/versionlock.list"]
    assert "nvidia-driver-cuda-3:580.173.02-*.*" in locked
    assert "nvidia-fabricmanager-580.173.02-*" in locked


@pytest.fixture(scope="session")
def later(ready: dict[str, Facts], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Said]:
    """What is said to hosts that were provisioned, after something happened to them."""
    ubuntu, rocky = ready["ubuntu2404-h100x8"], ready["rocky9-a100x8"]
    ask = "systemctl show --property=NeedDaemonReload --value nvidia-persistenced"
    kernel = HOSTS["rhel9-t4x2"]["facts"]["kernel"]
    parts = ("nvidia-driver-cuda", "kmod-nvidia-open-dkms")
    headers = (f"kernel-devel-{kernel}", "kernel-devel-matched", "kernel-headers")
    facts = {
        # A newer driver was installed and does not run yet. Docker's configuration was written, not read.
        "ubuntu2404-h100x8": {
            **ubuntu,
            "commands": {**ubuntu["commands"], "nvidia-smi -L": {"rc": 18}},
            "scripts": {**ubuntu["scripts"], "look.py": '{"stale": true, "driver": false}'},
        },
        # The unit was written, not read. Docker's configuration too, and containers run.
        "rocky9-a100x8": {
            **rocky,
            "commands": {**rocky["commands"], ask: "yes"},
            "scripts": {**rocky["scripts"], "look.py": '{"stale": true, "running": ["train"]}'},
        },
        # The driver came another way, and nothing heeds versions that are locked.
        "rhel9-t4x2": {
            **HOSTS["rhel9-t4x2"],
            "installed": dict.fromkeys(parts, "580.173.02-1.el9") | dict.fromkeys(headers, "5.14.0-570.el9"),
            "known": ["*"],
        },
        # An older kernel runs than the archive has by now.
        "ubuntu2204-dgx2": {
            **HOSTS["ubuntu2204-dgx2"],
            "installed": {"linux-image-generic": "5.15.0.100.97"},
        },
        # An older driver of the same branch is stated.
        "debian12-v100x8-proxy": {
            **HOSTS["debian12-v100x8-proxy"],
            "installed": {"cuda-drivers": "580.173.02-1", "nvidia-driver-pinning-580.126.20": "1-1"},
            "known": ["*"],
            "vars": {"cluster_driver": "580.126.20"},
        },
    }
    tags = "gpu_driver,gpu_persistence,container_runtime"
    return rehearse(facts, tmp_path_factory.mktemp("later"), "--tags", tags)


def told(said: Said, role: str, task: str) -> Facts:
    """What the module of a task was told; there is one such task."""
    found: list[Facts] = [
        each["args"] for each in said.events if (each["role"], each["task"]) == (role, task)
    ]
    assert len(found) == 1
    return found[0]


@again
def test_a_driver_that_waits_for_a_reboot_is_left_to_the_role_that_reboots(later: dict[str, Said]) -> None:
    start = "Daemon | Let it start with the host, and now where the driver is loaded"
    assert later["ubuntu2404-h100x8"].failures == []
    assert "state" not in told(later["ubuntu2404-h100x8"], "gpu_persistence", start)
    assert told(later["rocky9-a100x8"], "gpu_persistence", start)["state"] == "restarted"


@again
def test_docker_is_restarted_for_what_it_has_not_read_unless_containers_run(later: dict[str, Said]) -> None:
    start = "Docker | Have it start with the host"
    states = {name: told(later[name], "container_runtime", start)["state"] for name in AGAIN[:2]}
    assert states == {"ubuntu2404-h100x8": "restarted", "rocky9-a100x8": "started"}
    notes = [note for note in later["rocky9-a100x8"].notes if "daemon.json" in note]
    assert [("train" in note, "have ended" in note) for note in notes] == [(True, True)]


@again
def test_dnf_heeds_locked_versions_though_the_driver_was_there_before(later: dict[str, Said]) -> None:
    tools = told(later["rhel9-t4x2"], "gpu_driver", "Dnf | Install what a driver needs first")
    assert tools["name"] == ["python3-dnf-plugin-versionlock"]


@again
def test_the_kernel_of_the_archive_s_modules_comes_with_all_of_its_own(later: dict[str, Said]) -> None:
    kernel = told(later["ubuntu2204-dgx2"], "gpu_driver", "Apt | Take the newest kernel with all its modules")
    assert (kernel["name"], kernel["state"]) == ("linux-image-generic", "latest")


@again
def test_a_stated_version_that_is_older_is_taken(later: dict[str, Said]) -> None:
    driver = told(later["debian12-v100x8-proxy"], "gpu_driver", "Apt | Install the driver")
    assert set(driver["name"]) == {"cuda-drivers"}
    assert (driver["state"], driver["allow_downgrade"]) == ("latest", True)


# --- the roles that no golden file has --------------------------------------------------------


def test_what_is_alike_on_all_systems_can_be_checked_on_enterprise_linux(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Debian's releases are provisioned for real, by the tests of the lab."""
    hosts = {name: HOSTS[name] for name in ("rocky9-a100x8", "rhel10-h100x8")}
    told = rehearse(hosts, tmp_path_factory.mktemp("alike"), "--tags", ELSEWHERE)
    for name in hosts:
        assert told[name].failures == []
        assert {each["role"] for each in told[name].changes} == {"host_names", "host_limits", "ssh_trust"}
