"""Role container_runtime on two hosts, one of each release: the engine is real, and so is every container.

Stand-ins are the PCI bus, which shows a V100; NVIDIA's container toolkit, whose runtime here becomes the
real runc and whose hook does nothing; docker-ce, whose dockerd takes every configuration and never starts;
and a file that a process has open as if it were a GPU. The tests go one after the other on the same hosts,
from bare to provisioned.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml
from hosts import Lab, recap, sh
from standins import Package, StandIns

pytestmark = [pytest.mark.gpu_hosts, pytest.mark.timeout(300)]

PATIENCE = 290
OLD, PINNED, NEW = "1.19.0", "1.20.0", "1.21.0"
LIBRARIES = ("libnvidia-container1", "libnvidia-container-tools")
TOOLKIT = (*LIBRARIES, "nvidia-container-toolkit", "nvidia-container-toolkit-base")
DOCKER_CE = ("docker-ce", "docker-ce-cli", "containerd.io", "docker-buildx-plugin", "docker-compose-plugin")
PROGRAMS = {
    "/usr/bin/nvidia-container-runtime": '#!/bin/sh\nexec runc "$@"\n',
    "/usr/bin/nvidia-container-runtime-hook": "#!/bin/sh\n",
}
NEVER = {
    "/usr/bin/dockerd": '#!/bin/sh\n[ "$1" = --validate ]\n',
    "/usr/lib/systemd/system/docker.service": "[Service]\nType=notify\nExecStart=/usr/bin/dockerd\n"
    "[Install]\nWantedBy=multi-user.target\n",
}
BUS = """
mkdir -p /srv/pci/0000:06:00.0; cd /srv/pci/0000:06:00.0
echo 0x10de >vendor; echo 0x1db5 >device; echo 0x030200 >class
"""
IMAGE = r"""
tar -C / -ch usr/bin/cat $(ldd /usr/bin/cat | grep -o '/[^ ]*' | cut -c2-) | docker import - base
"""
# Of somebody else: a key that is his own, an order of his own, and a default that is not ours.
THEIRS = {
    "log-opts": {"max-size": "10m"},
    "log-driver": "json-file",
    "default-shm-size": "3G",
    "debug": False,
}
VERSIONS = "dpkg-query -W -f '${Package} ${Version} ${db:Status-Want}\\n' " + " ".join(TOOLKIT)
STARTED = "systemctl show --property=ActiveEnterTimestampMonotonic docker"
SPEC = """
mkdir -p /etc/cdi
cat >/etc/cdi/standin.yaml <<END
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices: [{name: all, containerEdits: {env: [GPU_OF_CDI=1]}}]
END
"""


def toolkit(version: str) -> list[Package]:
    """The four packages, with the real ones' dependencies: of the same version, or of a newer one."""
    newer = ", ".join(f"{name} (>= {version}-1)" for name in LIBRARIES)
    needs = {
        "nvidia-container-toolkit": f"nvidia-container-toolkit-base (= {version}-1), {newer}",
        "libnvidia-container-tools": f"libnvidia-container1 (>= {version}-1)",
    }
    return [
        Package(
            name,
            f"{version}-1",
            needs.get(name, ""),
            PROGRAMS if name == "nvidia-container-toolkit" else {},
            "container_toolkit",
        )
        for name in TOOLKIT
    ]


def docker_ce() -> list[Package]:
    version = "5:29.1.0-1~debian.12~bookworm"
    return [
        Package(name, version, files=NEVER if name == "docker-ce" else {}, repository="docker")
        for name in DOCKER_CE
    ]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, suffix: str) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("labs") / f"engine{suffix}") as lab:
        lab.up("--hosts", "2", "--release", "bookworm,trixie")
        for host in lab.hosts:
            sh(lab, host, BUS)
        packages = [*toolkit(OLD), *toolkit(PINNED), *toolkit(NEW), *docker_ce()]
        with StandIns(lab, packages):
            yield lab


def state(lab: Lab, **hosts: dict[str, object]) -> None:
    """State variables: of all hosts what they share, and what ``hosts`` says of one of them."""
    proxy = f"http://{lab.address(lab.hosts[0]).rpartition('.')[0]}.1:31420"
    shared = {
        "cluster_card_model": "Tesla V100-SXM2-32GB",
        "gpu_hardware_pci": "/srv/pci",
        "package_sources_proxy": proxy,
    }
    for host in lab.hosts:
        path = lab.folder / "host_vars" / host / "test.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump({"cluster_cards": 1, **shared, **hosts.get(host, {})}))


def provision(lab: Lab, *words: str, tags: str = "container_runtime") -> tuple[str, list[str]]:
    """What is printed, and the sentences about what failed."""
    done = lab.runner("provision", "--tags", tags, *words, timeout=PATIENCE)
    said = [line.removeprefix("runkit: ") for line in done.stderr.splitlines() if line.startswith("runkit: ")]
    assert done.returncode == (1 if said else 0), done.stdout + done.stderr
    return done.stdout + done.stderr, said


def daemon(lab: Lab, host: str) -> dict[str, object]:
    document: dict[str, object] = json.loads(sh(lab, host, "cat /etc/docker/daemon.json"))
    return document


def pinned(version: str) -> str:
    return "".join(f"{name} {version}-1 hold\n" for name in sorted(TOOLKIT))


def test_check_of_bare_hosts_names_the_engine_of_each_release(lab: Lab) -> None:
    first, second = lab.hosts
    state(lab)
    text, said = provision(lab, "--check", tags="package_sources,container_runtime")
    assert said == []
    assert f"{first}, {second}: vendor_sources: " in text
    assert '"runtimes": {' in text
    changed = {host: counts[0] for host, counts in recap(text).items()}
    assert changed[first] > changed[second] > 3  # docker's repository, for Debian 12's own docker is too old
    for host in lab.hosts:
        assert sh(lab, host, "ls -d /etc/docker /usr/bin/docker /etc/apt/keyrings/* 2>/dev/null || :") == ""


def test_docker_ce_is_asked_for_by_its_names(lab: Lab) -> None:
    first, _ = lab.hosts
    _, said = provision(lab, "--limit", first, tags="package_sources,container_runtime")
    (sentence,) = said
    assert sentence.startswith(f"{first}: container_runtime: docker does not start, with or without what was")
    names = sh(lab, first, "dpkg-query -W -f '${Package}\\n' " + " ".join(DOCKER_CE)).split()
    assert sorted(names) == sorted(DOCKER_CE)
    assert sh(lab, first, "ls /etc/docker") == ""
    sh(lab, first, f"apt-get purge -qy {' '.join(DOCKER_CE)}")


def test_containers_start(lab: Lab) -> None:
    first, second = lab.hosts
    state(lab, **{first: {"container_runtime_engine": "docker.io"}})
    sh(lab, second, f"mkdir -p /etc/docker; echo '{json.dumps(THEIRS)}' >/etc/docker/daemon.json")
    text, said = provision(lab, tags="package_sources,container_runtime")
    assert said == []
    assert "runkit may start containers from now on" in text
    for host in lab.hosts:
        assert sh(lab, host, "docker ps --all --quiet; docker image ls --all --quiet") == ""
        sh(lab, host, IMAGE)
        done = lab.ssh(host, "docker run --rm --gpus all base cat /proc/mounts")
        assert done.returncode == 0, done.stderr
        size = {first: "1048576", second: "3145728"}[host]
        assert any("/dev/shm" in line and f"size={size}k" in line for line in done.stdout.splitlines())
        # The runtime is asked by its name, as older ways do it.
        done = lab.ssh(host, "docker run --rm --runtime nvidia base cat /proc/self/cgroup")
        assert "/docker/" in done.stdout, done.stderr  # system.slice/docker- is what systemd would make
        assert sh(lab, host, VERSIONS) == pinned(PINNED)
    assert list(daemon(lab, second).items())[: len(THEIRS)] == list(THEIRS.items())
    sh(lab, second, SPEC)
    done = lab.ssh(second, "docker run --rm --device nvidia.com/gpu=all base cat /proc/self/environ")
    assert "GPU_OF_CDI=1" in done.stdout, done.stderr
    assert "features" not in daemon(lab, first)  # its docker has none of that


def test_second_run_changes_nothing_and_takes_nothing_newer(lab: Lab) -> None:
    before = {host: sh(lab, host, STARTED) for host in lab.hosts}
    text, said = provision(lab)
    assert said == []
    assert set(recap(text).values()) == {(0, 0, 0)}
    for host in lab.hosts:
        assert sh(lab, host, STARTED) == before[host]
        assert NEW in sh(lab, host, "apt-cache policy nvidia-container-toolkit")
        assert "Inst nvidia" not in sh(lab, host, "apt-get -s upgrade")


def test_nothing_is_broken_that_somebody_uses(lab: Lab) -> None:
    first, second = lab.hosts
    larger: dict[str, object] = {"container_runtime_engine": "docker.io", "container_runtime_shm_size": "2G"}
    state(lab, **{first: larger, second: larger})
    sh(lab, first, "docker run --detach --name theirs base cat /dev/zero >/dev/null")
    sh(lab, second, "touch /dev/nvidia0; systemd-run --unit theirs sleep infinity </dev/null")
    sh(lab, second, "systemctl stop theirs; systemd-run --unit theirs sh -c 'exec sleep 999 </dev/nvidia0'")
    text, said = provision(lab)
    assert len(said) == 2, text
    assert any(
        line.startswith(f"{first}: container_runtime: docker must be restarted") and "theirs" in line
        for line in said
    )
    assert any(
        line.startswith(f"{second}: host_idle: sleep (process ") and "/dev/nvidia0" in line for line in said
    )
    assert sh(lab, first, "docker rm --force theirs") == "theirs\n"
    sh(lab, second, "systemctl stop theirs; rm /dev/nvidia0")
    assert provision(lab)[1] == []
    for host in lab.hosts:
        assert "size=2097152k" in sh(lab, host, "docker run --rm base cat /proc/mounts")
        assert daemon(lab, host)["default-shm-size"] == "2G"


def test_what_stands_in_the_way_is_one_sentence(lab: Lab) -> None:
    first, second = lab.hosts
    state(
        lab,
        **{
            first: {"container_runtime_engine": "docker-ce"},
            second: {"container_runtime_toolkit_version": "9.9.9"},
        },
    )
    _, said = provision(lab)
    assert len(said) == 2, said
    (line,) = (line for line in said if line.startswith(f"{first}: "))
    assert line.startswith(
        f"{first}: container_runtime: docker.io, containerd, runc are installed and cannot be"
    )
    (line,) = (line for line in said if line.startswith(f"{second}: "))
    assert "nvidia-container-toolkit=9.9.9-1" in line
    assert "container_runtime_toolkit_version" in line
    assert sh(lab, second, VERSIONS) == pinned(PINNED)


def test_a_configuration_that_docker_does_not_take_stays_as_it_is(lab: Lab) -> None:
    """One is no JSON; to the other belongs a unit with an option that must not be in the file as well."""
    first, second = lab.hosts
    broken = '{"debug": tru}'
    override = "[Service]\nExecStart=\nExecStart=/usr/sbin/dockerd -H fd:// --default-shm-size 1G\n"
    folder = "/etc/systemd/system/docker.service.d"
    sh(lab, first, f"cp /etc/docker/daemon.json /root; echo '{broken}' >/etc/docker/daemon.json")
    sh(
        lab,
        second,
        f"mkdir -p {folder}; printf '{override}' >{folder}/theirs.conf; rm /etc/docker/daemon.json",
    )
    sh(lab, second, "systemctl daemon-reload; systemctl restart docker")
    state(lab, **{first: {"container_runtime_engine": "docker.io"}})
    _, said = provision(lab)
    assert len(said) == 2, said
    (line,) = (line for line in said if line.startswith(f"{first}: "))
    assert "/etc/docker/daemon.json is not what docker reads, line 1, column 11: Expecting value" in line
    assert sh(lab, first, "cat /etc/docker/daemon.json") == broken + "\n"
    (line,) = (line for line in said if line.startswith(f"{second}: "))
    assert "docker does not start with what was added to /etc/docker/daemon.json" in line
    assert "specified both as a flag and in the configuration file: default-shm-size" in line
    assert sh(lab, second, "ls /etc/docker; systemctl is-active docker").split()[-1] == "active"
    sh(lab, first, "mv /root/daemon.json /etc/docker")
    sh(lab, second, f"rm -r {folder}; systemctl daemon-reload")


@pytest.mark.timeout(600)
def test_a_docker_that_is_never_ready_is_not_waited_for_without_end(lab: Lab) -> None:
    """On the first host whatever it is configured with, on the second with what is added to it alone."""
    first, second = lab.hosts
    folder = "/etc/systemd/system/docker.service.d"
    cat = "cat /etc/docker/daemon.json 2>/dev/null || :"
    before = sh(lab, second, cat)
    always = "exec sleep infinity"
    added = "grep -q sleepy /etc/docker/daemon.json && exec sleep infinity; exec dockerd -H fd://"
    for host, script in ((first, always), (second, added)):
        unit = f"[Service]\nTimeoutStartSec=0\nExecStart=\nExecStart=/bin/sh -c '{script}'\n"
        sh(
            lab,
            host,
            f"mkdir -p {folder}; cat >{folder}/theirs.conf <<'END'\n{unit}END\nsystemctl daemon-reload",
        )
    sh(lab, first, "systemctl stop docker.service docker.socket")
    theirs = {first: {"container_runtime_engine": "docker.io"}}
    state(lab, **theirs, **{second: {"container_runtime_registry_mirrors": ["https://sleepy.example"]}})
    said = sorted(provision(lab)[1])
    assert len(said) == 2, said
    assert f"{first}: container_runtime: docker does not start: it is not ready after 90 s" in said[0]
    assert f"{second}: container_runtime: docker does not start with what was added" in said[1]
    assert sh(lab, second, f"{cat}; systemctl is-active docker") == before + "active\n"
    for host in lab.hosts:
        sh(lab, host, f"rm -r {folder}; systemctl daemon-reload")
    state(lab, **theirs)
    assert provision(lab)[1] == []
    assert [sh(lab, host, "systemctl is-active docker") for host in lab.hosts] == ["active\n"] * 2


def test_another_version_of_the_toolkit_is_taken_where_it_is_stated(lab: Lab) -> None:
    first, second = lab.hosts
    older: dict[str, object] = {"container_runtime_toolkit_version": OLD}
    state(
        lab,
        **{
            first: {"container_runtime_engine": "docker.io", **older},
            second: {"container_runtime_toolkit_version": NEW},
        },
    )
    assert provision(lab)[1] == []
    assert [sh(lab, host, VERSIONS) for host in lab.hosts] == [pinned(OLD), pinned(NEW)]
