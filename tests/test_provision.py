"""``provision`` where no host is needed: usage, this machine, what is refused, and what known_hosts is."""

from __future__ import annotations

import base64
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from kit import ROOT
from plays import play

from runner import provision
from runner.io import ansible, events

ANSIBLE = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
    "ANSIBLE_NOCOLOR": "1",
    "LC_ALL": "C.UTF-8",
}


def runner(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "runner", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


# --- the command line ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(
            ["--limit", "localhots"], "--limit localhots: no such host; nearest: localhost", id="host"
        ),
        pytest.param(["--tags", "mpy"], "--tags mpy: no such tag; nearest: mpi", id="tag"),
        pytest.param(["--limit", ""], "--limit '' (an empty word): no such host", id="empty limit"),
        pytest.param(["--tags", ""], "--tags '' (an empty word): no such tag", id="empty tags"),
        pytest.param(["--tags", "ssh_trust,"], "--tags '' (an empty word): no such tag", id="empty tag"),
        pytest.param(["-i", "locla"], "-i locla: no such cluster; nearest: local", id="cluster"),
    ],
)
def test_usage(tmp_path: Path, words: list[str], said: str) -> None:
    done = runner(tmp_path, "provision", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_help_tells_of_the_tag_that_is_no_role(tmp_path: Path) -> None:
    assert "undo_tuning" in ansible.tags("provision")
    assert "undo_tuning" in runner(tmp_path, "provision", "--help").stdout


# --- this machine --------------------------------------------------------------------------


def test_this_machine_is_verified_and_left_as_it_is(tmp_path: Path) -> None:
    done = runner(tmp_path, "provision")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("localhost : ok=")
    assert " changed=0 unreachable=0 failed=0 " in done.stdout
    assert "left as it is" in done.stderr
    tasks = [
        line
        for line in (tmp_path / "runs" / "provision-local.log").read_text().splitlines()
        if "TASK" in line
    ]
    assert [line for line in tasks if "Install" in line] == []


def test_this_machine_would_not_be_changed_either(tmp_path: Path) -> None:
    done = runner(tmp_path, "provision", "--check")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("nothing would change\n")


@pytest.mark.parametrize(
    ("said_by_python", "remedy"),
    [
        ("No module named 'numpy'", "install numpy and mpi4py"),
        ("libmpi.so.40: cannot open shared object file: No such file or directory", "a library is missing"),
    ],
)
def test_what_this_machine_lacks_is_told_all_of_it(said_by_python: str, remedy: str, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "{said_by_python}" >&2\nexit 1\n')
    python.chmod(0o755)
    cluster = tmp_path / "here"
    shutil.copytree(ROOT / "inventory" / "local", cluster)
    path = cluster / "group_vars" / "all" / "cluster.yml"
    lacking = {"cluster_python": str(python), "cluster_mpirun": "/no/such/mpirun"}
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **lacking}))
    done = runner(tmp_path, "-i", str(cluster), "provision")
    said = [line for line in done.stderr.splitlines() if line.startswith("runkit: localhost: ")]
    assert done.returncode == 1
    assert len(said) == 2, done.stderr
    assert f"{python}: {said_by_python}; {remedy}" in said[0]
    assert "/no/such/mpirun --version does not answer" in said[1]


# --- which systems are served --------------------------------------------------------------

SYSTEMS = {
    "debian12": ('PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\n', True),
    "debian13": ('PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nVERSION_ID="13"\nID=debian\n', True),
    "debian11": ('PRETTY_NAME="Debian GNU/Linux 11 (bullseye)"\nVERSION_ID="11"\nID=debian\n', False),
    "ubuntu2204": ('PRETTY_NAME="Ubuntu 22.04.5 LTS"\nVERSION_ID="22.04"\nID=ubuntu\nID_LIKE=debian\n', True),
    "ubuntu2404": ('PRETTY_NAME="Ubuntu 24.04.1 LTS"\nVERSION_ID="24.04"\nID=ubuntu\nID_LIKE=debian\n', True),
    "rocky9": (
        'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\nPRETTY_NAME="Rocky Linux 9.4"\n',
        True,
    ),
    "rhel10": ('ID="rhel"\nVERSION_ID="10.0"\nPRETTY_NAME="Red Hat Enterprise Linux 10.0"\n', True),
    "alma8": ('ID="almalinux"\nVERSION_ID="8.10"\nPRETTY_NAME="AlmaLinux 8.10"\n', False),
    "centos7": ('ID="centos"\nVERSION_ID="7"\nPRETTY_NAME="CentOS Linux 7 (Core)"\n', False),
    "centos6": ("CentOS release 6.10 (Final)\n", False),
    "alpine": ('ID=alpine\nVERSION_ID=3.20.3\nPRETTY_NAME="Alpine Linux v3.20"\n', False),
}
OLD = "its system Python is older than 3.8, which Ansible needs there"


def test_systems(tmp_path: Path) -> None:
    """Each system is a host on this machine with another release file; --check, so that nothing changes.

    The shell greets, and does not end its line.
    """
    shell = tmp_path / "shell"
    shell.write_text('#!/bin/sh\nprintf Hello; echo complaint >&2; exec /bin/sh "$@"\n')
    shell.chmod(0o755)
    for name, (text, _) in SYSTEMS.items():
        (tmp_path / name).write_text(text)
    hosts = {name: {"ansible_connection": "local", "cluster_cards": 1} for name in SYSTEMS}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    (tmp_path / "play.yml").write_text(
        yaml.safe_dump([{"hosts": "all", "gather_facts": False, "roles": ["cluster", "bootstrap"]}])
    )
    variables = {
        "__bootstrap_release_files": f"{tmp_path}/{{{{ inventory_hostname }}}}",
        "cluster_allow_controller": "true",
        "ansible_python_interpreter": sys.executable,
    }
    options = [word for key, value in variables.items() for word in ("-e", f"{key}={value}")]
    done = subprocess.run(
        [
            "ansible-playbook",
            "--check",
            "-i",
            str(tmp_path / "hosts.yml"),
            *options,
            str(tmp_path / "play.yml"),
        ],
        env={
            **ANSIBLE,
            "ANSIBLE_ROLES_PATH": str(ROOT / "roles"),
            "ANSIBLE_STDOUT_CALLBACK": "default",
            "ANSIBLE_EXECUTABLE": str(shell),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    refused = {
        line.split("[")[1].split("]")[0]: line for line in done.stdout.splitlines() if "fatal: [" in line
    }
    assert set(refused) == {name for name, (_, served) in SYSTEMS.items() if not served}, done.stdout
    assert f"AlmaLinux 8.10 on x86_64 is not supported: {OLD}; install Debian 12" in refused["alma8"]
    assert f"CentOS Linux 7 (Core) on x86_64 is not supported: {OLD}" in refused["centos7"]
    assert f"CentOS release 6.10 (Final) on x86_64 is not supported: {OLD}" in refused["centos6"]
    assert "Alpine Linux v3.20 on x86_64 is not supported: nobody tried runkit on it" in refused["alpine"]


# --- what stands in the way of packages ----------------------------------------------------

STATUS = """\
Package: whole
Status: install ok installed

Package: unpacked
Status: install ok unpacked

Package: begun
Status: install reinstreq half-installed

Package: failed
Status: hold ok half-configured

Package: waits
Status: install ok triggers-pending

Package: gone
Status: deinstall ok config-files
"""


def test_packages_that_are_half_installed(tmp_path: Path) -> None:
    """Of the states that dpkg(1) has, those that keep apt from installing anything else."""
    state = module("package_sources/files/state.py")
    (tmp_path / "updates").mkdir()
    state.STATUS, state.UPDATES = tmp_path / "status", tmp_path / "updates"
    assert state.half() == []  # no dpkg here
    state.STATUS.write_text(STATUS)
    assert state.half() == ["begun", "failed", "unpacked"]
    state.STATUS.write_text(STATUS.partition("\n\n")[0])
    assert state.half() == []
    (state.UPDATES / "0001").write_text("")  # dpkg was ended in the middle
    assert state.half() == ["dpkg's journal"]


def test_who_holds_a_lock_is_named_and_waited_for(tmp_path: Path) -> None:
    state = module("package_sources/files/state.py")
    lock = tmp_path / "lock"
    lock.touch()
    state.LOCKS = (str(tmp_path / "none"), str(lock))
    assert state.held(0) == ""
    script = f"import fcntl, sys; f = open({str(lock)!r}, 'w'); fcntl.lockf(f, 2); print(1, flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", f"{script}; sys.stdin.read()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdout.readline()
        assert re.fullmatch(rf"python[\d.]* \(process {holder.pid}\)", state.held(0))
        timer = threading.Timer(0.2, holder.stdin.close)
        timer.start()
        assert state.held(30) == ""  # it lets go meanwhile
    timer.join()


def test_a_folder_that_nobody_can_write_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flag 1 of statvfs(3) is ST_RDONLY."""
    state = module("package_sources/files/state.py")
    assert state.readonly() == []
    real = os.statvfs("/etc")
    flagged = os.statvfs_result((*real[:8], real.f_flag | 1, real.f_namemax))
    monkeypatch.setattr(os, "statvfs", lambda path: flagged if path == "/etc" else real)
    assert state.readonly() == ["/etc"]


def test_room_is_that_of_the_disk_where_a_folder_will_be(tmp_path: Path) -> None:
    state = module("package_sources/files/state.py")
    mib = shutil.disk_usage(tmp_path).free >> 20
    assert abs(state.free(str(tmp_path / "not" / "yet")) - mib) < 1000
    assert state.free("/proc/self") == 0


# --- what known_hosts is -------------------------------------------------------------------


def ssh_trust() -> ModuleType:
    return module("ssh_trust/filter_plugins/ssh_trust.py")


def module(name: str) -> ModuleType:
    """A program or plugin of a role, by its path below roles/."""
    path = ROOT / "roles" / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def a_key(folder: Path, name: str) -> tuple[str, str, str]:
    """Type, key and fingerprint, as ssh-keygen makes and prints them."""
    path = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    kind, key, *_ = path.with_suffix(".pub").read_text().split()
    shown = subprocess.run(["ssh-keygen", "-lf", path], capture_output=True, text=True, check=True).stdout
    return kind, key, shown.split()[1]


@pytest.mark.parametrize("source", ['10.0.0.1,command="id"', "10.0.0.1 10.0.0.2", "a\n", ""])
def test_what_is_no_address_does_not_come_into_authorized_keys(tmp_path: Path, source: str) -> None:
    tasks = [{"ansible.builtin.import_role": {"name": "ssh_trust"}}]
    said = play(tmp_path, tasks, fails=True, ssh_trust_from=["10.0.0.0/8", source])
    assert "is no address, network or pattern of hosts" in said


@pytest.mark.parametrize("name", ["a b", "../x", "", "a\n"])
def test_a_name_that_would_break_ssh_of_the_launch_host_is_refused(tmp_path: Path, name: str) -> None:
    """It stands in the name of a file of ssh's configuration, and in a line of it."""
    tasks = [{"ansible.builtin.import_role": {"name": "ssh_trust"}}]
    said = play(tmp_path, tasks, fails=True, ssh_trust_name=name)
    assert "is no name of files of ssh; use letters, digits and . _ -" in said


def test_addresses_networks_and_patterns_are_sources() -> None:
    document = yaml.safe_load((ROOT / "roles/ssh_trust/vars/main.yml").read_text())
    for source in ("10.0.0.1", "10.0.0.0/8", "fe80::1%eth0", "*.example.org", "!node-?"):
        assert re.match(document["__ssh_trust_source"], source), source


def test_known_hosts(tmp_path: Path) -> None:
    trust = ssh_trust()
    kind, old, old_print = a_key(tmp_path, "old")
    _, new, new_print = a_key(tmp_path, "new")
    addresses, ports = {"n1": "10.0.0.1", "n2": "10.0.0.2"}, {"n1": 22, "n2": 2222}
    text = trust.known_hosts("", addresses, ports, {"n1": {kind: old}, "n2": {kind: old}})

    # ssh-keygen, which reads such files for a living, finds every alias.
    (tmp_path / "known").write_text(text)
    for alias in ("n1", "10.0.0.1", "[n2]:2222", "[10.0.0.2]:2222"):
        found = subprocess.run(
            ["ssh-keygen", "-F", alias, "-f", tmp_path / "known"], capture_output=True, text=True
        )
        assert old in found.stdout, alias

    assert trust.differs(text, "n2", {kind: old, "ssh-rsa": new}) == ""
    assert trust.differs(text, "n2", {kind: new}) == f"{kind} was {old_print} and is {new_print}"
    # A host that was not asked keeps its line, one that left the cluster loses it.
    again = trust.known_hosts(text, addresses, ports, {"n1": {kind: new}})
    assert again.splitlines() == [f"n1,10.0.0.1 {kind} {new}", text.splitlines()[1]]
    assert trust.known_hosts(text, {"n1": "10.0.0.1"}, ports, {}) == text.splitlines()[0] + "\n"
    assert trust.known_hosts("hostile\n\x00 a b c d\n", addresses, ports, {}) == ""
    assert trust.fingerprint(base64.b64encode(b"x").decode() + "!") == "not a key"


# --- what is told --------------------------------------------------------------------------

CHANGED = """\
Task failed: Failed to connect to the host via ssh: @@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
The fingerprint for the ED25519 key sent by the remote host is
SHA256:AbCd+/123.
Please contact your system administrator.
Offending ED25519 key in /home/a user/known_hosts:7
Host key verification failed."""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(
            CHANGED, ["changed", "SHA256:AbCd+/123,", "/home/a user/known_hosts has another"], id="changed"
        ),
        pytest.param("No route to host", ["is it on"], id="off"),
        pytest.param(
            "Mitogen was disconnected from the remote environment while a call was in-progress.",
            ["is it on"],
            id="gone in the middle",
        ),
        pytest.param(
            "Mitogen was disconnected from the remote environment while a call was in-progress. If you feel "
            "this is in error, please file a bug. Original error was: no route to 4, my ID is 0",
            ["the connection to it was lost: is it on"],
            id="gone, by Mitogen's words",
        ),
        pytest.param(
            "Task failed: EOF on stream; last 100 lines received:", ["lost: is it on"], id="gone, by its pipe"
        ),
        pytest.param(
            "EOF on stream; last 100 lines received:\nme@a: Permission denied (publickey).",
            ["authorized_keys on the host"],
            id="a login that was refused",
        ),
        pytest.param(
            "builtins.AttributeError: 'NoneType' object has no attribute 'protocol'\n"
            '  File "/x/mitogen/service.py", line 712, in _forward',
            ["lost: is it on"],
            id="gone while Mitogen sends",
        ),
        pytest.param(
            'Data could not be sent to remote host "10.0.0.1". Make sure this host can be reached over ssh:',
            ["is it on"],
            id="gone while Ansible sends",
        ),
        pytest.param(
            "Channel was disconnected while connection attempt was in progress; this may be caused by an "
            "abnormal Ansible exit, or due to an unreliable target.",
            ["the connection to it was lost: is it on"],
            id="gone while Mitogen logs in",
        ),
        pytest.param(
            "Task failed: Action failed: The module interpreter '/usr/bin/python9' was not found.",
            ["ansible_python_interpreter"],
            id="no such Python",
        ),
        pytest.param("Task failed: Missing sudo password", ["ansible_become_password"], id="no password"),
        pytest.param("a\x1b[31m\nb", ["a\\x1b[31m ... b"], id="escaped"),
        pytest.param("", ["failed without a word"], id="silent"),
    ],
)
def test_explain(text: str, words: list[str]) -> None:
    line = provision.explain(text)
    assert "\n" not in line
    assert [word for word in words if word not in line] == []


PLAIN = {"ansible_host": "10.0.0.1", "ansible_ssh_common_args": "-J gate", "ansible_become_password": "x"}


@pytest.mark.parametrize(
    ("values", "strategy"),
    [
        pytest.param({}, "mitogen_plain", id="nothing stated"),
        pytest.param({**PLAIN, "ansible_connection": "ssh", "cluster_cards": 8}, "mitogen_plain", id="ssh"),
        pytest.param({"ansible_connection": "local"}, "linear", id="this machine"),
        pytest.param({"ansible_become_method": "su"}, "linear", id="not sudo"),
        pytest.param({"ansible_become_exe": "/opt/sudo"}, "linear", id="another sudo"),
        pytest.param({"ansible_password": "x"}, "linear", id="login by password"),
    ],
)
def test_mitogen_is_for_hosts_that_it_reaches_as_ansible_does(
    values: dict[str, object], strategy: str
) -> None:
    assert provision.strategy([values]) == strategy
    assert provision.strategy([PLAIN, values]) == strategy, "one strategy for all hosts"


def test_mitogen_is_left_where_its_socket_has_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a path that unix(7) takes no longer; it would wait for ever."""
    short, long = Path("/tmp/own"), Path("/" + "x" * 99)
    monkeypatch.delenv("ANSIBLE_STRATEGY", raising=False)
    assert ansible._strategy("mitogen_plain", short) == {
        "ANSIBLE_STRATEGY": "mitogen_plain",
        "TMPDIR": str(short),
    }
    assert ansible._strategy("mitogen_plain", long) == {"ANSIBLE_STRATEGY": "linear"}
    monkeypatch.setenv("ANSIBLE_STRATEGY", "free")
    assert ansible._strategy("mitogen_plain", short) == {"ANSIBLE_STRATEGY": "free"}


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ({"stderr": "Shared connection to 10.0.0.1 closed.\r\n", "stdout": "E: 28: No space left"}, "E: 28"),
        ({"stderr": "Shared connection to 10.0.0.1 closed.\r\n", "stdout": ""}, "Shared connection"),
        ({"stderr": "E: no\r\nShared connection to 10.0.0.1 closed.\r\n", "stdout": "Hit:1"}, "E: no"),
        ({"stderr": "E: no", "stdout": "Hit:1"}, "E: no"),
    ],
)
def test_what_ssh_says_behind_a_command_is_not_taken_for_its_words(result: dict[str, str], told: str) -> None:
    """A command on a terminal has all its words in stdout, and ssh says goodbye in stderr."""
    data = {"host": "a", "task": "t", "res": {"msg": "non-zero return code", "rc": 100, **result}}
    (failure,) = events.failures([{"event": "runner_on_failed", "event_data": data}])
    assert failure.text.startswith(told)
    assert (told == "Shared connection") == ("is it on" in provision.explain(failure.text))


REPOSITORY = "http://mirror.example/developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64"
# What apt 2.6 and 3.0 and dpkg said on hosts of the lab; and what the remedy is about.
PACKAGES = {
    "key of another, gpgv": (
        f"W: GPG error: {REPOSITORY}  InRelease: The following signatures couldn't be verified "
        "because the public key is not available: NO_PUBKEY 3E8E791C965C870F\nE: The "
        f"repository '{REPOSITORY}  InRelease' is not signed.",
        "than the one that is pinned",
    ),
    "key of another, sqv": (
        f"W: OpenPGP signature verification failed: {REPOSITORY}  InRelease: Sub-process /usr/bin/sqv"
        " returned an error code (1), error message is: Missing key "
        "A47A558F543576EEACB9830D3E8E791C965C870F, which is needed to verify signature.\nE: "
        f"The repository '{REPOSITORY}  InRelease' is not signed.",
        "than the one that is pinned",
    ),
    "expired key": (
        f"W: GPG error: {REPOSITORY}  InRelease: The following signatures were invalid: EXPKEYSIG "
        f"A2326DAAFDF0A35E Some vendor\nE: The repository '{REPOSITORY}  InRelease' is not signed.",
        "has expired; renew it",
    ),
    "expired signature": (
        f"E: Release file for {REPOSITORY}/InRelease is expired (invalid since 2h 0min 1s). Updates "
        "for this repository will not be applied.",
        "bring the mirror up to date",
    ),
    "changed, gpgv": (
        f"W: GPG error: {REPOSITORY}  InRelease: The following signatures were invalid: BADSIG "
        "711F22122344D0D1 Vendor",
        "not what was signed",
    ),
    "changed, sqv": (
        f"W: OpenPGP signature verification failed: {REPOSITORY}  InRelease: Sub-process /usr/bin/sqv"
        " returned an error code (1), error message is: Verifying signature:            "
        "Message has been manipulated",
        "not what was signed",
    ),
    "not mirrored": (
        f"E: The repository '{REPOSITORY}  Release' does not have a Release file.",
        "must have it below HOST/PATH",
    ),
    "no route": (
        f"E: Failed to fetch {REPOSITORY}/InRelease  Could not connect to mirror.example:80 "
        "(192.0.2.1). - connect (111: Connection refused)\nE: Some index files failed to "
        "download. They have been ignored, or old ones used instead.",
        "the host does not reach it; state package_sources_proxy",
    ),
    "no route, and no Release file therefore": (
        f"Err:2 {REPOSITORY} Release\n  Cannot initiate the connection to 203.0.113.1:3142 "
        "(203.0.113.1). - connect (101: Network is unreachable)\nReading package lists...\n"
        f"E: The repository '{REPOSITORY} Release' does not have a Release file.",
        "the host does not reach it; state package_sources_proxy",
    ),
    "lock": (
        "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 1216 "
        "(python3)\nE: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend),"
        " is another process using it?",
        "another program installs packages there",
    ),
    "full": (
        "E: You don't have enough free space in /var/cache/apt/archives/.",
        "make room there",
    ),
    "full lists": (
        "E: Failed to fetch http://mirror.example/debian/dists/trixie/InRelease  Error "
        "writing to file - write (28: No space left on device) [IP: 192.0.2.1 80]",
        "make room there",
    ),
    "half installed": (
        "dpkg: error processing package half (--configure):\n installed half package "
        "post-installation script subprocess returned error exit status 1\nErrors were "
        "encountered while processing:\n half\nE: Sub-process /usr/bin/dpkg returned an error "
        "code (1)",
        "dpkg --configure -a",
    ),
    "interrupted": (
        "E: dpkg was interrupted, you must manually run 'sudo dpkg --configure -a' to correct the problem.",
        "a package is half installed",
    ),
    "no package": (
        "No package matching 'nvidia-open' is available",
        "a mirror needs it too",
    ),
    "no version": (
        "E: Version '999' for 'cuda-drivers' was not found",
        "state another version",
    ),
    "held": (
        "E: Held packages were changed and -y was used without --allow-change-held-packages.",
        "see apt-mark showhold",
    ),
    "dnf, no package": (
        "Failed to install some of the specified packages\nNo package nvidia-open available.",
        "a mirror needs it too",
    ),
    "no source at all": (
        "E: Type 'garbage' is not known on line 1 in source list /etc/apt/sources.list.d/x.list",
        "correct that file of sources, or remove it",
    ),
    "a source that lacks a word": (
        "E: Malformed entry 1 in sources file /etc/apt/sources.list.d/x.sources (Suite)",
        "correct that file of sources, or remove it",
    ),
    "a stanza that is none": (
        "E: Unable to parse package file /etc/apt/sources.list.d/x.sources (1)",
        "correct that file of sources, or remove it",
    ),
    "dnf, no route": (
        "Failed to download metadata for repo 'runkit-cuda': Cannot download repomd.xml: "
        "Cannot download repodata/repomd.xml: All mirrors were tried",
        "the host does not reach it",
    ),
}


@pytest.mark.parametrize("name", PACKAGES)
def test_what_keeps_packages_from_being_installed_is_one_sentence_with_its_remedy(name: str) -> None:
    text, remedy = PACKAGES[name]
    line = provision.explain(text)
    assert remedy in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("stdout", "stderr", "named"),
    [
        (
            "The following packages will be REMOVED:\n  gnupg\nThe following held packages will be changed:\n"
            "  bash\n  gnupg\n0 upgraded, 0 newly installed, 1 to remove and 129 not upgraded.\n",
            "E: Held packages were changed and -y was used without --allow-change-held-packages.\n",
            "held packages will be changed: bash gnupg: ",
        ),
        (
            "The following packages have unmet dependencies:\n"
            " gnupg : Depends: gpg (< 2.2.40-1.1+deb12u2.1~) but it is not going to be installed\n"
            "         Depends: gpg (>= 2.2.40-1.1+deb12u2) but it is not going to be installed\n"
            " gpgsm : Depends: gpg\n",
            "E: Unable to correct problems, you have held broken packages.\n",
            "packages have unmet dependencies: gnupg : Depends: gpg (< 2.2.40-1.1+deb12u2.1~) but it is not "
            "going to be installed: ",
        ),
    ],
)
def test_the_packages_that_a_hold_or_a_pin_keeps_back_are_named(stdout: str, stderr: str, named: str) -> None:
    """What apt 2.6 said; it names them on standard output, and its error does not."""
    res = {"msg": "'/usr/bin/apt-get -y' failed: " + stderr, "rc": 100, "stdout": stdout, "stderr": stderr}
    data = {"host": "a", "task": "t", "res": res}
    (failure,) = events.failures([{"event": "runner_on_failed", "event_data": data}])
    line = provision.explain(failure.text)
    assert line.startswith(named)
    assert "see apt-mark showhold" in line


FILES = {
    "/etc/security/limits.d already exists as a file": "a folder must be there; move away",
    "Destination /etc/security/limits.d not writable": "it is mounted read-only; see dmesg",
    "There was an issue creating /etc/x as requested: [Errno 30] Read-only file system: b'/etc/x'": "mounted",
}


@pytest.mark.parametrize("said", FILES)
def test_what_keeps_a_file_from_being_written_has_its_remedy(said: str) -> None:
    assert provision.explain(said).startswith(f"{said}: ")
    assert FILES[said] in provision.explain(said)


def test_a_profile_that_tuned_does_not_know_has_its_remedy() -> None:
    assert "correct host_tuning_profile" in provision.explain("tuned-adm profile x: Unable to switch profile")


def test_a_sentence_with_its_remedy_gets_no_other() -> None:
    line = "the key cannot be fetched: No route to host; state package_sources_proxy"
    assert provision.explain(line) == line


def test_a_login_of_the_launch_host_is_not_taken_for_ours() -> None:
    line = "ssh from the launch host gpu1 as me fails: Host key verification failed.; see what sshd says here"
    assert provision.explain(line) == line


def test_an_address_tells_no_password() -> None:
    line = provision.explain("E: Failed to fetch http://me:hush@mirror.example/x  Connection refused")
    assert line.startswith("E: Failed to fetch http://***@mirror.example/x  Connection refused: ")


def test_differences_of_hosts_that_agree_stand_together() -> None:
    diff = {"before": "a\nb\n", "after": "a\nc\n", "after_header": "/etc/x"}
    long = {"prepared": "\n".join(f"line {number}" for number in range(100))}
    lines = list(
        provision.differences(
            [("n1", "role: t", [diff]), ("n2", "role: t", [[diff]]), ("n2", "other: t", [long])]
        )
    )
    assert lines[:6] == ["n1, n2: role: t", "    /etc/x", "    @@ -1,2 +1,2 @@", "     a", "    -b", "    +c"]
    assert lines[6] == "n2: other: t"
    assert lines[-1] == "    ... 60 more lines"


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ({"before_header": "/etc/x", "after_header": "/tmp/ansible-local-7/tmpq/x.j2"}, ["    /etc/x"]),
        ({"after_header": "/tmp/ansible-local-7/tmpq/x.j2"}, []),
        ({"after_header": "/srv/kit/roles/some/files/x"}, []),
    ],
)
def test_a_difference_is_headed_by_the_file_on_the_host(headers: dict[str, str], shown: list[str]) -> None:
    lines = provision.differences([("n1", "role: t", [{"before": "", "after": "a\n", **headers}])])
    assert list(lines)[1:-1] == [*shown, "    @@ -0,0 +1 @@"]


def test_hosts_that_agree_are_told_in_their_order_whichever_was_done_first() -> None:
    same = [{"prepared": "+x"}]
    changes = [(host, "role: task", same) for host in ("lab10", "lab2", "lab1")]
    assert list(provision.differences(changes)) == ["lab1, lab2, lab10: role: task", "    +x"]
