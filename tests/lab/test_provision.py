"""``provision`` on real hosts: two, one of each release, as a data centre hands them over.

The tests go one after the other on the same hosts, from bare to ready, and then break them one way at a time.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hosts import Lab, recap, sh

MEMLOCK_STACK_NOFILE = "ulimit -l; ulimit -s; ulimit -n"
FRESH = {"ANSIBLE_SSH_ARGS": "-o ControlPath=none"}  # no connection that is open already


def fingerprint(lab: Lab, host: str, path: str = "/etc/ssh/ssh_host_ed25519_key") -> str:
    """Of the host's key as its own ssh-keygen has it."""
    return sh(lab, host, f"ssh-keygen -lf {path}.pub").split()[1]


@contextmanager
def another_host_key(lab: Lab, host: str) -> Iterator[tuple[str, str]]:
    """Meanwhile sshd sends another key: its fingerprint, and its line for the controller's known_hosts."""
    known = lab.folder / ".ssh" / "known_hosts"
    before = known.read_text()
    key = "/etc/ssh/ssh_host_ed25519_key"
    use = f"cp /root/{{0}} {key}; cp /root/{{0}}.pub {key}.pub; systemctl restart ssh"
    sh(lab, host, f"cp -a {key} /root/old; cp {key}.pub /root/old.pub")
    sh(lab, host, "ssh-keygen -q -t ed25519 -N '' -f /root/new")
    line = f"{lab.address(host)} {' '.join(sh(lab, host, 'cat /root/new.pub').split()[:2])}\n"
    now = fingerprint(lab, host, "/root/new")
    sh(lab, host, use.format("new"))
    try:
        yield now, line
    finally:
        known.write_text(line)
        sh(lab, host, use.format("old") + "; rm /root/old* /root/new*")
        known.write_text(before)


@contextmanager
def variables(lab: Lab, text: str) -> Iterator[None]:
    path = lab.folder / "group_vars" / "all" / "test.yml"
    path.write_text(text)
    try:
        yield
    finally:
        path.unlink()


def test_check_of_bare_hosts_completes_and_changes_nothing(bare: Lab) -> None:
    for host in bare.hosts:
        sh(bare, host, "touch /root/before; sleep 0.1")
    done = bare.runner("provision", "--check", check=0, timeout=200)
    for host in bare.hosts:
        assert recap(done.stdout)[host][0] > 5
        changed = sh(
            bare,
            host,
            "find / -xdev -newer /root/before -type f -not -path '*/.ansible/*' -not -path '/var/log/*'"
            " -not -path '/proc/*' -not -path '/sys/*' -not -path '/run/*' -not -path '/tmp/*'"
            " -not -path '/var/cache/apt/*.bin' || true; rm /root/before",
        )
        assert changed == ""
    first, second = bare.hosts
    assert f"+{bare.address(second)} {second}" in done.stdout
    assert f"{first}, {second}: host_limits: State the limits of sessions" in done.stdout


def test_provision_makes_them_ready_but_for_mixed_versions(bare: Lab) -> None:
    first, second = bare.hosts
    done = bare.runner("provision", timeout=290)
    said = [line for line in done.stderr.splitlines() if line.startswith("runkit: ")]
    assert len(said) == 1, done.stderr
    assert f"{first}: mpi: Open MPI differs between the hosts, 4.1 on {first}; 5.0 on {second}" in said[0]
    assert done.returncode == 1
    assert recap(done.stdout)[second][1:] == (0, 0)
    log = re.search(r"output: (\S+)", done.stderr)
    assert log is not None
    assert "PLAY RECAP" in (bare.work / log[1]).read_text()


def test_second_run_changes_nothing(bare: Lab) -> None:
    done = bare.runner("provision", timeout=200)
    assert {host: counts[0] for host, counts in recap(done.stdout).items()} == dict.fromkeys(bare.hosts, 0)


def test_names_limits_clock_python(bare: Lab) -> None:
    for host in bare.hosts:
        for other in bare.hosts:
            assert sh(bare, host, f"getent ahostsv4 {other}").split()[0] == bare.address(other)
            assert sh(bare, host, f"getent hosts {bare.address(other)}").split()[1] == other
        limits = bare.ssh(host, MEMLOCK_STACK_NOFILE).stdout.split()
        most = sh(bare, host, "cat /proc/1/limits")
        memlock = re.search(r"Max locked memory\s+\S+\s+(\S+)", most)[1]  # type: ignore[index]
        nofile = re.search(r"Max open files\s+\S+\s+(\S+)", most)[1]  # type: ignore[index]
        wanted = "unlimited" if memlock == "unlimited" else str(int(memlock) // 1024)
        assert limits == [wanted, "unlimited", str(min(1048576, int(nofile)))]
        defaults = sh(bare, host, "systemctl show --property=DefaultLimitNOFILE,DefaultLimitMEMLOCK")
        assert f"DefaultLimitNOFILE={limits[2]}\n" in defaults
        assert f"DefaultLimitMEMLOCK={memlock.replace('unlimited', 'infinity')}\n" in defaults
        # The clock of a container is its machine's: enabled, and not started.
        assert bare.ssh(host, "systemctl is-enabled chrony").stdout == "enabled\n"
        assert bare.ssh(host, "systemctl is-active chrony systemd-timesyncd").stdout == "inactive\n" * 2
        assert (
            bare.ssh(
                host, "/usr/bin/python3 -c 'import numpy, mpi4py.MPI as m; print(m.COMM_WORLD.size)'"
            ).stdout
            == "1\n"
        )


def test_the_library_of_packages_is_installed_through_the_proxy_that_is_stated(bare: Lab) -> None:
    """As on a bare host of a site without a way to the internet: nothing there knows of the proxy yet."""
    second = bare.hosts[1]
    sh(bare, second, "apt-get remove -q -y python3-apt; apt-get clean; rm /etc/apt/apt.conf.d/80runkit-proxy")
    done = bare.runner("provision", "--tags", "package_sources", "--limit", second, check=0)
    assert recap(done.stdout)[second][1:] == (0, 0)
    sh(bare, second, "/usr/bin/python3 -c 'import apt'; test -e /etc/apt/apt.conf.d/80runkit-proxy")


def sentence(bare: Lab, host: str) -> str:
    done = bare.runner("provision", "--tags", "package_sources", "--limit", host, check=1)
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("runkit: "))
    return line


def test_sources_that_cannot_be_read_are_one_sentence_and_mended_by_the_next_call(bare: Lab) -> None:
    second, named = bare.hosts[1], "/etc/apt/apt.conf.d/80runkit-proxy"
    own = bare.folder / "host_vars" / f"{second}.yml"
    own.parent.mkdir(exist_ok=True)
    bridge = bare.address(second).rpartition(".")[0] + ".1"
    before = sh(bare, second, f"cat {named}")
    try:
        own.write_text(f"package_sources_proxy: '{bridge}:9'\n")
        assert "package_sources_proxy is no address of a proxy; write it as" in sentence(bare, second)
        assert sh(bare, second, f"cat {named}") == before
        own.write_text(f"package_sources_proxy: http://{bridge}:9\n")
        for _ in range(2):  # the second time apt's lists are young
            line = sentence(bare, second)
            assert "the lists of packages cannot be read" in line
            assert "the host does not reach it; state package_sources_proxy" in line
            assert sh(bare, second, f"ls {named} 2>/dev/null || :") == ""
    finally:
        own.unlink()
    sh(bare, second, "echo garbage here >/etc/apt/sources.list.d/theirs.list")
    line = sentence(bare, second)
    assert "Type 'garbage' is not known on line 1 in source list /etc/apt/sources.list.d/theirs.list" in line
    assert "correct that file of sources, or remove it" in line
    sh(bare, second, "rm /etc/apt/sources.list.d/theirs.list")
    done = bare.runner("provision", "--tags", "package_sources", "--limit", second, check=0)
    assert recap(done.stdout)[second][1:] == (0, 0)
    assert sh(bare, second, f"cat {named}") == before


# dpkg killed while it unpacks: it had noted that before.
KILLED = """
mv /usr/bin/dpkg-deb /root/dpkg-deb
cat >/usr/bin/dpkg-deb <<'END'
#!/bin/sh
case "$*" in *fsys-tarfile*) kill -9 $PPID ;; esac
exec /root/dpkg-deb "$@"
END
chmod 755 /usr/bin/dpkg-deb
! apt-get install -q -y --reinstall python3-mpi4py >&2
mv /root/dpkg-deb /usr/bin/dpkg-deb
dpkg-query -W -f '${db:Status-Abbrev}' python3-mpi4py
"""


def test_a_package_that_dpkg_was_killed_in_is_installed_anew(bare: Lab) -> None:
    """dpkg --configure and apt-get leave it as it is, and are content."""
    second = bare.hosts[1]
    assert sh(bare, second, KILLED) == "iHR"
    words = ("provision", "--tags", "package_sources", "--limit", second)
    done = bare.runner(*words, check=0)
    assert f"{second}: python3-mpi4py was half installed or half removed; it is installed anew" in done.stderr
    assert "is finished" not in done.stderr
    assert sh(bare, second, "dpkg --audit") == ""
    assert recap(bare.runner(*words, check=0).stdout)[second][1:] == (0, 0)


def test_another_user_than_on_the_launch_host_is_refused(bare: Lab) -> None:
    second = bare.hosts[1]
    own = bare.folder / "host_vars" / f"{second}.yml"
    own.parent.mkdir(exist_ok=True)
    own.write_text("ssh_trust_user: root\n")
    try:
        done = bare.runner("provision", "--tags", "ssh_trust", check=1)
    finally:
        own.unlink()
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("runkit: "))
    assert line.startswith(f"runkit: {second}: ssh_trust: ranks log in as runkit from the launch host")
    assert "it would be root here; state one user" in line


def test_trust_goes_from_the_launch_host_only(bare: Lab) -> None:
    first, second = bare.hosts
    for target in (first, second, bare.address(second)):
        done = bare.ssh(first, f"ssh {target} hostname")
        assert done.stdout.strip() in (first, second), done.stderr
    assert (
        bare.ssh(second, f"ssh -o BatchMode=yes -o StrictHostKeyChecking=no {first} true").returncode == 255
    )

    key = f".ssh/runkit_{bare.name}"
    assert bare.ssh(first, f"stat -c '%a %U' {key}").stdout == "600 runkit\n"
    private = bare.ssh(first, f"sed -n 3p {key}").stdout.strip()
    assert len(private) > 40
    assert bare.sudo(second, f"grep -rlF -e {private} /home /root /etc /tmp /var/tmp").stdout == ""
    trusted = bare.ssh(second, "cat .ssh/authorized_keys").stdout
    assert f'from="{bare.address(first)}",restrict ssh-ed25519 ' in trusted
    # No terminal and no forwarding, which a launch does not need.
    refused = bare.ssh(first, f"ssh -tt {second} tty")
    assert "PTY allocation request failed" in refused.stderr


def test_another_host_key_is_never_taken_silently(bare: Lab) -> None:
    first, second = bare.hosts
    known, was = bare.folder / ".ssh" / "known_hosts", fingerprint(bare, second)
    with another_host_key(bare, second) as (now, line):
        # The controller knows the old key: one line with the fingerprint, and the other host goes on.
        done = bare.runner("provision", "--tags", "host_names", check=1, **FRESH)
        said = next(each for each in done.stderr.splitlines() if each.startswith(f"runkit: {second}: "))
        assert now in said
        assert recap(done.stdout) == {first: (0, 0, 0), second: (0, 1, 0)}

        # The controller was told the new key, the launch host was not: both fingerprints, nothing replaced.
        mine = [each for each in known.read_text().splitlines() if not each.startswith(bare.address(second))]
        known.write_text("\n".join([*mine, line]))
        done = bare.runner("provision", "--tags", "ssh_trust", check=1, **FRESH)
        said = next(each for each in done.stderr.splitlines() if each.startswith("runkit: "))
        assert said.startswith(f"runkit: {second}: ssh_trust: ")
        assert f"ssh-ed25519 was {was} and is {now}" in said
        assert recap(done.stdout)[first] == (0, 0, 0)
        assert "Host key verification failed" in bare.ssh(first, f"ssh {second} true").stderr

        with variables(bare, "ssh_trust_replace_host_keys: true\n"):
            bare.runner("provision", "--tags", "ssh_trust", check=0, **FRESH)
        assert bare.ssh(first, f"ssh {second} hostname").stdout == f"{second}\n"
    with variables(bare, "ssh_trust_replace_host_keys: true\n"):
        bare.runner("provision", "--tags", "ssh_trust", check=0, **FRESH)


def test_an_unknown_host_key_is_refused(bare: Lab) -> None:
    second = bare.hosts[1]
    known = bare.folder / ".ssh" / "known_hosts"
    before = known.read_text()
    rest = [line for line in before.splitlines() if not line.startswith(bare.address(second))]
    known.write_text("\n".join(rest) + "\n")
    try:
        done = bare.runner("provision", "--tags", "host_names", check=1, **FRESH)
        assert known.read_text() == "\n".join(rest) + "\n"
    finally:
        known.write_text(before)
    line = next(line for line in done.stderr.splitlines() if line.startswith(f"runkit: {second}: "))
    assert fingerprint(bare, second) in line


def test_what_ssh_is_configured_to_keep_of_host_keys_holds(bare: Lab) -> None:
    """Each strategy leaves that to ssh. Such options are careless; they are what many a cluster has."""
    careless = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    for strategy in ("mitogen_plain", "linear"):
        with variables(bare, f"ansible_ssh_common_args: {careless}\n"):
            done = bare.runner("provision", "--tags", "time_service", check=0, ANSIBLE_STRATEGY=strategy)
        assert recap(done.stdout) == dict.fromkeys(bare.hosts, (0, 0, 0))


def test_limit_keeps_what_is_known_of_other_hosts(bare: Lab) -> None:
    first, second = bare.hosts
    done = bare.runner("provision", "--limit", first, "--tags", "ssh_trust", check=0)
    assert recap(done.stdout) == {first: (0, 0, 0)}
    assert bare.ssh(first, f"ssh {second} hostname").stdout == f"{second}\n"
    done = bare.runner("provision", "--limit", second, "--tags", "ssh_trust,host_names", check=0)
    assert recap(done.stdout) == {second: (0, 0, 0)}
    assert f"{second}: the launch host {first} is not part of this call" in done.stderr


def test_a_resolver_that_does_not_answer(bare: Lab) -> None:
    first, second = bare.hosts
    silent = bare.address(second).rpartition(".")[0] + ".250"  # in the lab's network, and nobody
    sh(bare, second, f"echo nameserver {shlex.quote(silent)} > /etc/resolv.conf")
    try:
        # The names of the cluster are in /etc/hosts: ready, and what is slow is told.
        done = bare.runner("provision", "--tags", "host_names", check=0)
        assert f"{second}: the resolver does not answer within 2 s" in done.stderr
        # The resolver asked before /etc/hosts: every look-up waits.
        sh(bare, second, "sed -i.bak 's/^hosts:.*/hosts: dns files/' /etc/nsswitch.conf")
        done = bare.runner("provision", "--tags", "host_names", check=1)
        line = next(line for line in done.stderr.splitlines() if line.startswith("runkit: "))
        assert line.startswith(
            f"runkit: {second}: host_names: {first} should be {bare.address(first)}: no answer within 2 s"
        )
        assert "nsswitch.conf" in line
        assert recap(done.stdout) == {first: (0, 0, 0), second: (0, 0, 1)}
    finally:
        sh(
            bare,
            second,
            "rm /etc/resolv.conf; cd /etc; [ ! -e nsswitch.conf.bak ] || mv nsswitch.conf.bak nsswitch.conf",
        )


def test_a_password_that_is_wrong_or_missing_is_one_line(bare: Lab, tmp_path: Path) -> None:
    second = bare.hosts[1]
    sh(bare, second, "useradd -m -s /bin/sh -G sudo plain; echo plain:hushhush-9 | chpasswd")
    sh(bare, second, "cp -r ~runkit/.ssh ~plain/; chown -R plain: ~plain")
    path = bare.folder / "host_vars" / second / "login.yml"
    path.parent.mkdir(parents=True)
    try:
        for text, reason in (
            ("ansible_user: plain\n", "sudo asks for a password"),
            ("ansible_user: plain\nansible_become_password: wrong-9-pass\n", "the become password is wrong"),
            ("ansible_user: plain\nansible_become_password: hushhush-9\n", ""),
        ):
            path.write_text(text)
            done = bare.runner("provision", "--tags", "bootstrap", check=1 if reason else 0)
            said = [line for line in done.stderr.splitlines() if line.startswith("runkit: ")]
            assert [f"runkit: {second}: bootstrap: " in line and reason in line for line in said] == [
                True
            ] * bool(reason)
            everything = (
                done.stdout + done.stderr + (bare.work / "runs" / f"provision-{bare.name}.log").read_text()
            )
            assert "wrong-9-pass" not in everything
            assert "hushhush-9" not in everything
    finally:
        path.unlink()
        path.parent.rmdir()
        path.parent.parent.rmdir()
        sh(bare, second, "loginctl terminate-user plain || true; userdel -rf plain 2>/dev/null || true")


def test_four_ready_hosts_stay_as_they_are(ready: Lab) -> None:
    done = ready.runner("provision", check=0, timeout=200)
    assert recap(done.stdout) == dict.fromkeys(ready.hosts, (0, 0, 0))
    first, *others = ready.hosts
    for other in others:
        assert ready.ssh(first, f"ssh {other} hostname").stdout == f"{other}\n"
