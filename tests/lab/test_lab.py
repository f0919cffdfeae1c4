"""The lab itself: made, ended, and found again in whatever state it was left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import PROGRAM, ROOT, Lab, wait_for


def traces(name: str) -> list[str]:
    """What the machine knows of a lab; looked up in other ways than the lab's own."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{entry}/cmdline").read_bytes()
            cgroup = Path(f"/proc/{entry}/cgroup").read_text()
            state = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z" and (f"lab/{name}/".encode() in words or f"/runkit-lab/{name}/" in cgroup):
            found.append(f"process {entry} {words!r}")
    found += [line for line in Path("/proc/mounts").read_text().splitlines() if f"/lab/{name}/" in line]
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    found += [line for line in links.splitlines() if f"rk-{name}" in line or f"vb-{name}" in line]
    routes = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout
    found += [line for line in routes.splitlines() if f"rk-{name}" in line]
    found += map(str, Path("/sys/fs/cgroup").glob(f"**/runkit-lab/{name}"))
    found += [str(path) for path in (Path("/var/lib/runkit/lab") / name,) if path.exists()]
    found += map(str, Path("/run/systemd/nspawn").glob(f"*/{name}[0-9]*"))
    return found


@pytest.fixture
def lab(tmp_path: Path, suffix: str) -> Iterator[Lab]:
    """A lab that is not up yet."""
    lab = Lab(tmp_path / f"t{suffix}")
    yield lab
    subprocess.run([sys.executable, PROGRAM, "down", lab.name, lab.folder], check=True)
    assert traces(lab.name) == []


def test_up_status_down(lab: Lab) -> None:
    assert lab.runner("lab", "status", check=1).stdout == f"lab {lab.name}: none; lab up makes it\n"
    lab.up("--hosts", "1")  # with that the root file system is there
    assert traces(lab.name) != []
    lab.runner("lab", "down", check=0)
    assert traces(lab.name) == []
    assert not (lab.folder / "hosts.yml").exists()
    assert not (lab.folder / ".ssh").exists()

    began = time.monotonic()
    lab.up("--hosts", "4")
    assert time.monotonic() - began < 10
    shown = lab.runner("lab", "status", check=0).stdout
    assert [host for host in lab.hosts if f"| {host}" in shown] == lab.hosts
    names = [lab.ssh(host, "hostname").stdout.strip() for host in lab.hosts]
    assert names == [f"{lab.name}{i}" for i in (1, 2, 3, 4)]
    again = lab.runner("lab", "up", "--hosts", "3")
    assert (again.returncode, "has 4 hosts; end it first: lab down" in again.stderr) == (2, True)
    assert lab.runner("lab", "down").stderr == f"lab {lab.name}: gone\n"
    assert lab.runner("lab", "down", check=0).stderr == f"lab {lab.name}: there was none\n"


def test_a_host_that_is_off_is_said_to_be_off_and_keeps_its_disk(lab: Lab) -> None:
    lab.up("--hosts", "2")
    first, second = lab.hosts
    lab.sudo(first, "echo kept > /root/mine; sync")
    lab.power_off(first)
    assert lab.runner("lab", "status").returncode == 1
    assert [lab.state(first), lab.state(second)] == ["off", "up"]
    lab.boot()
    assert lab.sudo(first, "cat /root/mine").stdout == "kept\n"
    lab.cut(second)
    assert lab.state(second) == "silent"
    lab.join(second)
    assert lab.state(second) == "up"


def find(lab: Lab, what: str) -> int:
    """Process id of a part of the lab."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{entry}/cmdline").read_bytes().decode().split("\0")
            cgroup = Path(f"/proc/{entry}/cgroup").read_text()
        except OSError:
            continue
        if f"/runkit-lab/{lab.name}/" in cgroup and words[0].rpartition("/")[2] == what:
            return int(entry)
    raise AssertionError(f"no {what}")


@pytest.mark.parametrize(
    ("what", "told"),
    [("systemd-nspawn", "unattended"), ("systemd", "off"), ("apt-cacher-ng", "package proxy missing")],
)
def test_a_part_is_killed(lab: Lab, what: str, told: str) -> None:
    lab.up("--hosts", "2")
    os.kill(find(lab, what), signal.SIGKILL)
    wait_for(lambda: told in lab.runner("lab", "status").stdout, "status to say so", 5)
    assert lab.runner("lab", "status").returncode == 1
    lab.up()
    lab.runner("lab", "status", check=0)
    assert [lab.ssh(host, "true").returncode for host in lab.hosts] == [0, 0]
    os.kill(find(lab, what), signal.SIGKILL)
    lab.runner("lab", "down", check=0)
    assert traces(lab.name) == []


@pytest.mark.parametrize("cut", ["link set vb-{0}1 down", "link delete rk-{0}", "link delete vb-{0}1"])
def test_a_network_that_was_cut_is_mended(lab: Lab, cut: str) -> None:
    lab.up("--hosts", "2")
    subprocess.run(["ip", *cut.format(lab.name).split()], check=True)
    lab.runner("lab", "status", check=1)
    lab.up()
    lab.runner("lab", "status", check=0)
    assert [lab.ssh(host, "true").returncode for host in lab.hosts] == [0, 0]


@pytest.mark.parametrize("text", ["", "[]", "null", '{"name": "x"}'])
def test_a_plan_that_is_damaged(lab: Lab, text: str) -> None:
    lab.up("--hosts", "1")
    (Path("/var/lib/runkit/lab") / lab.name / "lab.json").write_text(text)
    assert "remains of one" in lab.runner("lab", "status", check=1).stdout
    assert "remove them first: lab down" in lab.runner("lab", "up", check=2).stderr
    lab.runner("lab", "down", check=0)
    assert traces(lab.name) == []
    assert not (lab.folder / ".ssh").exists()
    assert not (lab.folder / "hosts.yml").exists()


def test_a_lab_whose_folder_is_gone_is_ended_from_another_of_its_name(lab: Lab, tmp_path: Path) -> None:
    lab.up("--hosts", "1")
    lab.folder.rename(tmp_path / "away")
    (tmp_path / "again").mkdir()
    Lab(tmp_path / "again" / lab.name).runner("lab", "down", check=0)
    assert traces(lab.name) == []


@pytest.mark.parametrize("seconds", [0.4, 1.2, 2.0, 2.6, 3.2])
def test_up_is_killed_half_way(lab: Lab, seconds: float) -> None:
    lab.up("--hosts", "1")
    lab.runner("lab", "down", check=0)
    making = subprocess.Popen(
        lab.command("lab", "up", "--hosts", "3"),
        cwd=lab.work,
        env=lab.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(seconds)
    with making:
        making.kill()
    lab.runner("lab", "down", check=0)
    assert traces(lab.name) == []
    time.sleep(1)
    assert traces(lab.name) == [], "what the killed command had started went on"
    lab.up("--hosts", "3")
    lab.runner("lab", "status", check=0)


def test_the_machine_was_started_anew(lab: Lab) -> None:
    """After a reboot the state files are there, and nothing else is."""
    lab.up("--hosts", "2")
    state, kept = Path("/var/lib/runkit/lab") / lab.name, lab.folder.parent / "kept"
    subprocess.run(["cp", "-a", "--one-file-system", state, kept], check=True)
    subprocess.run([sys.executable, PROGRAM, "down", lab.name, lab.folder], check=True)
    subprocess.run(["cp", "-a", kept, state], check=True)
    told = lab.runner("lab", "status", check=1).stdout
    assert told.count("| off ") == 2
    assert "bridge missing, package proxy missing" in told
    lab.runner("lab", "down", check=0)
    assert traces(lab.name) == []


def test_labs_stand_side_by_side(lab: Lab, tmp_path: Path, suffix: str) -> None:
    lab.up("--hosts", "1")
    (tmp_path / "second").mkdir()
    with Lab(tmp_path / "second" / f"u{suffix}") as other:
        other.up("--hosts", "1")
        assert (
            other.address(other.hosts[0]).rpartition(".")[0] != lab.address(lab.hosts[0]).rpartition(".")[0]
        )
        (tmp_path / "third").mkdir()
        clash = Lab(tmp_path / "third" / lab.name)
        said = clash.runner("lab", "up")
        assert (said.returncode, f"is that of {lab.folder}" in said.stderr) == (2, True)
        other.runner("lab", "down", check=0)
        lab.runner("lab", "status", check=0)
        said = clash.runner("lab", "down")
        assert (said.returncode, f"is that of {lab.folder}" in said.stderr) == (1, True)
        lab.runner("lab", "status", check=0)


def test_version_2_of_control_groups_serves_as_well(lab: Lab) -> None:
    alone = in_a_namespace("umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup")
    script = f"{sys.executable} -m runner -i {lab.folder} lab"
    steps = f"set -e; {script} up --hosts 2; {script} status; {script} down"
    done = subprocess.run(
        [*alone, "sh", "-c", steps], cwd=lab.work, env=lab.environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("| up ") == 4
    assert traces(lab.name) == []


def test_mixed_releases(bare: Lab) -> None:
    releases = [
        bare.ssh(host, ". /etc/os-release; echo $VERSION_CODENAME").stdout.strip() for host in bare.hosts
    ]
    assert releases == ["bookworm", "trixie"]
    states = [bare.ssh(host, "systemctl is-system-running --wait").stdout.strip() for host in bare.hosts]
    assert states == ["running", "running"]


ENGINE = r"""\
set -e
echo 'Acquire::http::Proxy "{proxy}";' > /etc/apt/apt.conf.d/90test
export DEBIAN_FRONTEND=noninteractive
apt-get -q update
client=$(apt-cache show docker-cli 2>&- | sed -n 's/^Package: //p')  # a package of its own in Debian 13
apt-get -qy install --no-install-recommends docker.io $client
tar -C / -ch usr/bin/dash $(ldd /usr/bin/dash | grep -o '/[^ ]*' | cut -c2-) | docker import - base
docker run --rm base /usr/bin/dash -c 'echo a container started'
"""


@pytest.mark.faults
@pytest.mark.parametrize("number", [0, 1], ids=["bookworm", "trixie"])
def test_a_container_engine_works(bare: Lab, number: int) -> None:
    host = bare.hosts[number]
    proxy = f"http://{bare.address(host).rpartition('.')[0]}.1:31420"
    done = bare.sudo(host, ENGINE.format(proxy=proxy), timeout=250)
    assert done.stdout.endswith("a container started\n"), done.stdout + done.stderr


@pytest.mark.faults
def test_thirty_two_hosts(lab: Lab) -> None:
    lab.up("--hosts", "32", "--release", "bookworm,trixie")
    assert len(lab.hosts) == 32
    lab.runner("lab", "status", check=0)
    available = Path("/proc/meminfo").read_text().split("MemAvailable:")[1].split()[0]
    assert int(available) > 4 << 20  # KiB


@pytest.mark.faults
@pytest.mark.alone
def test_the_setting_that_many_hosts_need_is_put_back(lab: Lab, tmp_path: Path) -> None:
    """With the last lab of the machine; here of a state folder apart, so that it is the last."""
    watches = Path("/proc/sys/fs/inotify/max_user_instances")
    (tmp_path / "state").mkdir()
    apart = in_a_namespace(f"mount --bind {tmp_path}/state /var/lib/runkit")
    kept = watches.read_text()
    watches.write_text("128")
    try:
        for words, expected in ((("up", "--hosts", "9"), 128 + 9 * 16), (("down",), 128)):
            argv = [*apart, *lab.command("lab", *words)]
            subprocess.run(argv, cwd=lab.work, env=lab.environment(), check=True, capture_output=True)
            assert int(watches.read_text()) == expected
    finally:
        watches.write_text(kept)


# --- machines that cannot ------------------------------------------------------------------


def refusal(argv: list[str], lab: Lab) -> str:
    done = subprocess.run(
        [*argv, *lab.command("lab", "up")],
        cwd=lab.work,
        env=lab.environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    *before, last = done.stderr.splitlines()
    assert before in ([], [f"lab {lab.name}: 4 hosts, bookworm"])
    return last


def in_a_namespace(script: str, *more: str) -> list[str]:
    """A command that runs the rest of its words after ``script``, in mounts of its own."""
    return ["unshare", "--mount", *more, "sh", "-ec", script + '; exec "$@"', "sh"]


@pytest.mark.parametrize(
    ("script", "says"),
    [
        pytest.param(
            "mount --bind /bin/false /usr/bin/systemd-nspawn; mount -t tmpfs none /opt; PATH=/opt:/bin-none",
            "systemd-nspawn",
            id="programs",
        ),
        pytest.param(
            "mount -t tmpfs none /sys/fs; mkdir /sys/fs/selinux; echo 1 > /sys/fs/selinux/enforce",
            "SELinux is enforcing, and would stop the hosts' systemd; setenforce 0",
            id="SELinux",
        ),
        pytest.param(
            "echo 0 > /proc/sys/user/max_user_namespaces",
            "user namespaces are switched off; sysctl user.max_user_namespaces=65536",
            id="user namespaces",
        ),
    ],
)
def test_what_is_missing_is_named(lab: Lab, script: str, says: str) -> None:
    own = ("--user", "--map-root-user") if "max_user" in script else ()
    assert says in refusal(in_a_namespace(script, *own), lab)


def test_an_ordinary_user_is_told(lab: Lab) -> None:
    argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    readable = subprocess.run([*argv, "test", "-r", str(ROOT / "runner")]).returncode == 0
    program = PROGRAM if readable else Path("/nowhere")
    done = subprocess.run([*argv, sys.executable, program, "check"], capture_output=True, text=True)
    assert "run it as root (sudo python -m runner lab up)" in done.stderr


def test_without_a_network_the_mirror_is_named(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    empty = f"mount --bind {tmp_path}/cache /var/cache/runkit"
    said = refusal(in_a_namespace(empty, "--net"), lab)
    assert "debootstrap of bookworm failed" in said


def test_a_host_of_a_lab_cannot_host_a_lab_and_says_so(bare: Lab) -> None:
    """A container, with none of the programs: the real thing."""
    host = bare.hosts[0]
    bare.ssh(host, "mkdir -p lab")
    for path in sorted(PROGRAM.glob("*.py")):
        bare.ssh(host, f"cat > lab/{path.name}", stdin=path.read_text())
    done = bare.sudo(host, "python3 /home/runkit/lab check")
    assert done.returncode == 1
    assert (
        "systemd-nspawn, debootstrap, apt-cacher-ng: missing; apt-get install apt-cacher-ng debootstrap"
        in done.stderr
    )
    assert "this is inside of a container (systemd-nspawn)" in done.stderr
