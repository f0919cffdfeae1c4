"""``provision`` broken off at any task, by a signal, a loss of power, within a package; no secret gets out.

Broken off, it is run again, and that goes on. In the end the host is ready, and then nothing changes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import random
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
import yaml
from hosts import ROOT, Lab, wait_for

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
AT_WORK_S = 180.0  # what was started on a host may end its task, such as a package that is being installed
ANSIBLE = Path(sys.executable).parent
BEGINS = re.compile(rb"\r([^\r\x1b]+) 0/\d+\x1b\[K")  # a task, as the display has it


@pytest.fixture
def lab(tmp_path: Path, suffix: str) -> Iterator[Lab]:
    """One bare host of Debian 13."""
    (tmp_path / "tmp").mkdir()
    with Lab(tmp_path / f"brk{suffix}") as lab:
        lab.up("--hosts", "1", "--release", "trixie")
        yield lab


def temporary(lab: Lab) -> Path:
    """Where commands of this lab have their temporary files."""
    return lab.folder.parent / "tmp"


def provision(lab: Lab, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return lab.runner("provision", *words, timeout=400, TMPDIR=str(temporary(lab)), **env)


def sh(lab: Lab, script: str) -> str:
    done = lab.sudo(lab.hosts[0], script)
    assert done.returncode == 0, f"{script}: {done.stderr}"
    return done.stdout


def tasks(lab: Lab) -> int:
    """How many tasks the playbook has."""
    listed = subprocess.run(
        [
            ANSIBLE / "ansible-playbook",
            "--list-tasks",
            "-i",
            lab.folder,
            ROOT / "playbooks" / "provision.yml",
        ],
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        capture_output=True,
        text=True,
        check=True,
    )
    return listed.stdout.count("TAGS: [") - listed.stdout.count("play #")


def broken_off(
    lab: Lab, position: int | str, number: int, delay: float = 0.0, tags: str = "", **env: str
) -> tuple[int, str]:
    """Provision, and send a signal ``delay`` s after a task begins, by number or name: status, and the task.

    The status is 1000 where it ended before. The display tells of tasks, which is for terminals.
    """
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
    with subprocess.Popen(
        lab.command("provision", *(["--tags", tags] if tags else [])),
        cwd=lab.work,
        env=lab.environment(TERM="xterm", TMPDIR=str(temporary(lab)), **env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=follower,
    ) as process:
        os.close(follower)
        seen, sent = b"", False
        with contextlib.suppress(OSError):  # EIO: nobody has the terminal any more
            while select.select([leader], [], [], 280)[0]:
                seen += os.read(leader, 65536)
                begun = [each.decode() for each in BEGINS.findall(seen)]
                there = position in begun if isinstance(position, str) else len(begun) >= position
                if not sent and there:
                    time.sleep(delay)
                    process.send_signal(number)
                    sent = True
        os.close(leader)
        status = process.wait(60)
    assert BEGINS.search(seen), seen.decode()
    return (status if sent else 1000), begun[-1]


def at_work(lab: Lab) -> list[int]:
    """Processes of Ansible that provision this lab."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{entry}/cmdline").read_bytes()
            if b"ansible-playbook" in words and f"{lab.folder}\0".encode() in words:
                found.append(int(entry))
    return found


def age(lab: Lab) -> None:
    """Let an hour pass for what is left in the folder of temporary files, and days on the host."""
    for path in temporary(lab).iterdir():
        os.utime(path, (time.time() - 3600, time.time() - 3600))
    sh(lab, "find /tmp -maxdepth 1 -name 'ansible*' -exec touch -d '2 days ago' {} +")


def assert_whole(lab: Lab) -> None:
    """Run to the end, then once more; nothing of what was broken off is left."""
    wait_for(lambda: not at_work(lab), "what was broken off to end", AT_WORK_S)
    age(lab)
    done = provision(lab)
    assert done.returncode == 0, done.stdout + done.stderr
    done = provision(lab)
    assert (done.returncode, " changed=0 " in done.stdout) == (0, True), done.stdout + done.stderr
    assert list(temporary(lab).iterdir()) == []
    assert sh(lab, "dpkg --audit") == ""
    folders = "~runkit/.ansible/tmp /root/.ansible/tmp"
    look = f"ls -A {folders} 2>/dev/null | grep -v : || true; ls -d /tmp/ansible* 2>/dev/null || true"
    assert sh(lab, look).split() == []


def break_off(lab: Lab, seed: int, times: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    most = tasks(lab) * 2 // 3  # there are more than a host without cards comes by
    for n, position in enumerate(sorted(chance.sample(range(1, most), times))):
        number = SIGNALS[n % len(SIGNALS)]
        status, task = broken_off(lab, position, number, chance.uniform(0, 1.5))
        print(f"{position} of {most}: {task}: {number.name}: status {status}")
        expected = (-9,) if number == signal.SIGKILL else (128 + number,)
        assert status in expected, f"{position} of {most}: {task}"
    assert_whole(lab)


@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_ten_break_offs(lab: Lab) -> None:
    break_off(lab, random.randrange(10**6), 10)


def init(lab: Lab) -> int:
    """The first process of the host, as the machine numbers it."""
    for entry in sorted(map(int, filter(str.isdigit, os.listdir("/proc")))):
        with contextlib.suppress(OSError):
            cgroup = Path(f"/proc/{entry}/cgroup").read_text()
            status = Path(f"/proc/{entry}/status").read_text()
            if f"/runkit-lab/{lab.name}/" in cgroup and re.search(r"^NSpid:\t\d+\t1$", status, re.MULTILINE):
                return entry
    raise AssertionError("the host does not run")


@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_power_goes_and_dpkg_is_killed_in_the_middle_of_a_package(lab: Lab) -> None:
    for lose in ("power", "dpkg"):
        with subprocess.Popen(
            lab.command("provision"),
            cwd=lab.work,
            env=lab.environment(TMPDIR=str(temporary(lab))),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            # While a package is being unpacked or set up.
            end = {"power": "pgrep", "dpkg": "pkill -KILL"}[lose]
            script = f"sudo sh -c 'until {end} -f \"[d]pkg .*--(unpack|configure)\" >/dev/null; do :; done'"
            assert lab.ssh(lab.hosts[0], script, timeout=200).returncode == 0
            if lose == "power":
                os.kill(init(lab), signal.SIGKILL)
            _, said = process.communicate(timeout=280)
        print(lose, said)
        assert process.returncode == 1
        assert [line for line in said.splitlines() if line.startswith(f"runkit: {lab.hosts[0]}: ")], said
        if lose == "power":
            lab.up()
    assert_whole(lab)


# --- secrets -------------------------------------------------------------------------------

BECOME, PROXY, TOKEN = "Planted-Become-31", "Planted-Proxy-32", "Planted-Token-33"
PASSWORD = "Planted-Password-34"
PROXY_TASK = "package_sources: Name the proxy to apt"
SOME = "package_sources,host_names,ssh_trust"
PLANTED = (BECOME, PROXY, TOKEN, PASSWORD)


class ProcessList:
    """The command lines of all processes of controller and host, which are on one machine."""

    def __enter__(self) -> ProcessList:
        self.seen: set[bytes] = set()
        self._over = Event()
        self._thread = Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.is_set():
            for entry in filter(str.isdigit, os.listdir("/proc")):
                with contextlib.suppress(OSError):
                    self.seen.add(Path(f"/proc/{entry}/cmdline").read_bytes())
            time.sleep(0.02)

    def tells(self, word: str) -> list[bytes]:
        return [line for line in self.seen if word.encode() in line]


def vaulted(lab: Lab, name: str, text: str) -> str:
    done = subprocess.run(
        [ANSIBLE / "ansible-vault", "encrypt_string", "--stdin-name", name],
        input=text,
        env={**os.environ, "ANSIBLE_VAULT_PASSWORD_FILE": str(lab.folder.parent / "password")},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout + "\n"


def plant(lab: Lab, port: int = 0) -> None:
    """State the secrets in the inventory, vaulted; ``port`` of a proxy that does not answer."""
    host = lab.hosts[0]
    stated = yaml.safe_load((lab.folder / "hosts.yml").read_text())["all"]
    proxy = str({**stated.get("vars", {}), **stated["hosts"][host]}["package_sources_proxy"])
    server = re.sub(r":\d+$", f":{port}", proxy) if port else proxy
    path = lab.folder / "host_vars" / host / "secrets.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "ansible_user: plain\n"
        + vaulted(lab, "ansible_become_password", BECOME)
        + vaulted(lab, "package_sources_proxy", server.replace("//", f"//user:{PROXY}@"))
        + vaulted(lab, "vendor_sources_mirror", f"http://user:{TOKEN}@mirror.example")
    )


def found(folder: Path) -> list[str]:
    """Planted words in files below a folder of the controller."""
    words = [option for word in PLANTED for option in ("-e", word)]
    done = subprocess.run(["grep", "-raoF", *words, str(folder)], capture_output=True, text=True)
    return done.stdout.splitlines()


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_no_secret_gets_out(lab: Lab) -> None:
    host, password = lab.hosts[0], lab.folder.parent / "password"
    password.write_text(f"{PASSWORD}\n")
    password.chmod(0o600)
    sh(lab, f"useradd -m -s /bin/sh -G sudo plain; echo plain:{BECOME} | chpasswd")
    sh(lab, "cp -r ~runkit/.ssh ~plain/; chown -R plain: ~plain; journalctl --rotate --vacuum-time=1s -q")
    env = {"ANSIBLE_VAULT_PASSWORD_FILE": str(password)}
    said = ""
    with ProcessList() as processes:
        plant(lab)
        for words in (["--check"], []):
            done = provision(lab, *words, **env)
            assert done.returncode == 0, done
            said += str(done)
        assert broken_off(lab, PROXY_TASK, signal.SIGINT, tags=SOME, **env)[0] == 130
        assert broken_off(lab, PROXY_TASK, signal.SIGKILL, tags=SOME, **env)[0] == -9
        plant(lab, port=9)  # apt tells of a proxy that does not answer
        told = provision(lab, "--debug", "--tags", "package_sources", **env)
        assert host in told.stderr
        sh(lab, "mv /usr/bin/python3 /usr/bin/python3.away")
        failed_early = provision(lab, "--tags", "bootstrap", **env)
        sh(lab, "mv /usr/bin/python3.away /usr/bin/python3")
        assert failed_early.returncode == 1
        assert "the password of package_sources_proxy" in failed_early.stderr
        said += str(told) + str(failed_early)
    age(lab)
    plant(lab)
    provision(lab, "--tags", "package_sources", **env)

    must_have = "/etc/apt/apt.conf.d/80runkit-proxy"
    assert sh(lab, f"stat -c '%a %U' {must_have}; grep -c {PROXY} {must_have}") == "600 root\n2\n"
    assert processes.tells(str(lab.folder)) != []
    for word in PLANTED:
        assert word not in said
        assert processes.tells(word) == []
        looked = sh(
            lab,
            "find / -xdev -type f ! -path '/proc/*' ! -path '/sys/*' -size -64M"
            f" -exec grep -laF {word} {{}} + || true; journalctl --no-pager | grep -aF {word} || true",
        )
        assert looked.splitlines() == ([must_have] if word == PROXY else [])
    assert found(lab.folder.parent) == [f"{password}:{PASSWORD}"]
    assert found(Path.home() / ".ansible") == []
