"""What role package_sources writes into the sources of packages, into files that are like those of a host."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from plays import play, role

PASSWORD = "hush-9-hush"
# As the distribution's own packages bring them, but for the names of servers.
ROCKY = "[baseos]\nmirrorlist=https://a.example/?x=$a\n#baseurl=http://b.example/$r/BaseOS/\ngpgcheck=1\n"
EPEL = "[epel]\n# not for everybody\n#baseurl=https://c.example/pub/epel/9/\nmetalink=https://d.example/m\n"
# Of Cisco's own servers, whom no mirror stands in for.
CISCO = "[epel-cisco-openh264]\nmetalink=https://d.example/c\nenabled=1\ngpgcheck=1\n"
SITE = "[site]\nbaseurl=http://site.example/\n"
FACTS = {"os_family": "RedHat"}


def mirrored(folder: Path, mirror: str, *words: str, **variables: Any) -> str:
    """Let the role put ``mirror`` in the place of servers; return what Ansible prints."""
    known: dict[str, Any] = {
        "ansible_facts": FACTS,
        "package_sources_mirror": mirror,
        "package_sources_no_proxy": [],
        "__package_sources_folder": str(folder / "repos"),
        **variables,
    }
    return play(folder, role("package_sources", "mirror"), *words, **known)


@pytest.fixture
def repos(tmp_path: Path) -> Path:
    """The folder of .repo files."""
    (tmp_path / "repos").mkdir()
    for name, text in (("rocky", ROCKY), ("epel", EPEL), ("site", SITE)):
        (tmp_path / "repos" / f"{name}.repo").write_text(text)
        (tmp_path / "repos" / f"{name}.repo").chmod(0o644)
    return tmp_path / "repos"


def test_the_mirror_stands_in_for_epel_too(tmp_path: Path, repos: Path) -> None:
    mirrored(tmp_path, "http://m.example/all")
    written = (repos / "epel.repo").read_text()
    assert written.splitlines()[2:] == [
        "baseurl=http://m.example/all/pub/epel/9/",
        "#metalink=https://d.example/m",
    ]
    assert (repos / "site.repo").read_text() == SITE


def test_what_no_mirror_has_is_switched_off(tmp_path: Path, repos: Path) -> None:
    cisco = repos / "epel-cisco-openh264.repo"
    cisco.write_text(CISCO)
    mirrored(tmp_path, "")
    assert cisco.read_text() == CISCO
    for changed in (6, 0):  # of the two others two rows each, and the note of the mirror
        assert mirrored(tmp_path, "http://m.example/all").count("changed: [localhost]") == changed
    assert cisco.read_text() == CISCO.replace("enabled=1", "enabled=0")


def test_lists_of_mirrors_of_debian_s_cloud_images(tmp_path: Path) -> None:
    (tmp_path / "repos/mirrors").mkdir(parents=True)
    sources = "Types: deb\nURIs: mirror+file:///etc/apt/mirrors/debian.list\nSuites: bookworm\n"
    (tmp_path / "repos/debian.sources").write_text(sources)
    (tmp_path / "repos/mirrors/debian.list").write_text("https://a.example/debian\n")
    (tmp_path / "repos/mirrors/debian-security.list").write_text("https://a.example/debian-security\n")
    for changed in (3, 0):  # and the note of the mirror
        said = mirrored(tmp_path, "http://m.example", ansible_facts={"os_family": "Debian"})
        assert said.count("changed: [localhost]") == changed
    assert (tmp_path / "repos/debian.sources").read_text() == sources
    assert (tmp_path / "repos/mirrors/debian.list").read_text() == "http://m.example/debian\n"
    security = (tmp_path / "repos/mirrors/debian-security.list").read_text()
    assert security == "http://m.example/debian-security\n"


def test_a_mirror_that_is_asked_without_the_proxy_says_so_once(tmp_path: Path, repos: Path) -> None:
    """dnf.conf(5): _none_ as a repository's proxy overrides the one of dnf.conf."""
    mirror = "http://m.example:8080/all"
    for changed in (7, 0):  # of each file three rows, and the note of the mirror
        said = mirrored(tmp_path, mirror, package_sources_no_proxy=["m.example"])
        assert said.count("changed: [localhost]") == changed
    assert (repos / "rocky.repo").read_text() == (
        "[baseos]\n#mirrorlist=https://a.example/?x=$a\n"
        f"baseurl={mirror}/$r/BaseOS/\nproxy=_none_\ngpgcheck=1\n"
    )
    assert f"baseurl={mirror}/pub/epel/9/\nproxy=_none_\n" in (repos / "epel.repo").read_text()
    mirrored(tmp_path, mirror, package_sources_no_proxy=["other.example"])
    assert (repos / "site.repo").read_text() == SITE


MOVES = (
    ("http://m.example/all", "http://m.example/all"),
    ("http://m.example", "http://m.example"),  # without the path of the one before
    ("http://m.example/all/", "http://m.example/all"),  # and with one more
    ("http://m.example2", "http://m.example2"),  # which begins as another one does
    ("http://10.0.0.9:8080/x/y", "http://10.0.0.9:8080/x/y"),
)


def test_a_mirror_takes_the_place_of_the_one_before_with_its_path(tmp_path: Path, repos: Path) -> None:
    for mirror, stands in MOVES:
        mirrored(tmp_path, mirror)
        assert f"\nbaseurl={stands}/$r/BaseOS/\n" in (repos / "rocky.repo").read_text()
        assert f"\nbaseurl={stands}/pub/epel/9/\n" in (repos / "epel.repo").read_text()


def test_a_mirror_of_debian_takes_the_place_of_the_one_before_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "repos").mkdir()
    sources = tmp_path / "repos" / "sources.list"
    text = "deb [arch=amd64] {0}/debian trixie main\nURIs: {0}/ubuntu\n# http://a.example/\n"
    sources.write_text(text.format("https://a.example"))
    for mirror, stands in MOVES:
        mirrored(tmp_path, mirror, ansible_facts={"os_family": "Debian"})
        assert sources.read_text() == text.format(stands)


@pytest.mark.parametrize("words", [("--check", "--diff"), ("--diff",)], ids=["check", "for real"])
def test_a_password_of_the_mirror_is_seen_by_root_alone(
    tmp_path: Path, repos: Path, words: tuple[str, ...]
) -> None:
    said = mirrored(tmp_path, f"http://me:{PASSWORD}@m.example", *words)
    assert "changed: [localhost]" in said
    assert PASSWORD not in said
    for path in repos.iterdir():
        assert PASSWORD not in path.read_text() or path.stat().st_mode & 0o777 == 0o600
    assert (PASSWORD in (repos / "rocky.repo").read_text()) == ("--check" not in words)
    assert (repos / "site.repo").stat().st_mode & 0o777 == 0o644


UNCHANGED = {"__package_sources_apt": {"changed": False}, "__package_sources_mirrored": {"changed": False}}


def test_what_apt_says_of_a_mirror_tells_no_password(tmp_path: Path) -> None:
    known: dict[str, Any] = {
        "ansible_facts": {"distribution": "Debian"},
        "__package_sources_debian": True,
        **UNCHANGED,
        "__package_sources_updated": {"rc": 100, "stderr": f"E: http://me:{PASSWORD}@m.example is gone"},
        "__package_sources_policy": {"stdout": ""},
    }
    said = play(tmp_path, role("package_sources", "lists"), "--check", fails=True, **known)
    assert "the lists of packages cannot be read: E: http://***@m.example is gone" in said
    assert PASSWORD not in said


def test_without_a_connection_no_server_is_blamed_for_what_it_lacks(tmp_path: Path) -> None:
    """What apt 2.6 prints where no route leads to the proxy; it ends with the consequence alone."""
    source = "http://m.example/debian trixie Release"
    known: dict[str, Any] = {
        "ansible_facts": {"distribution": "Debian"},
        "__package_sources_debian": True,
        **UNCHANGED,
        "__package_sources_updated": {
            "rc": 100,
            "stdout": f"Ign:1 http://m.example/debian trixie InRelease\nErr:2 {source}\n  Cannot initiate "
            "the connection to 203.0.113.1:3142 (203.0.113.1). - connect (101: Network is unreachable)\n",
            "stderr": f"E: The repository '{source}' does not have a Release file.",
        },
        "__package_sources_policy": {"stdout": ""},
    }
    said = play(tmp_path, role("package_sources", "lists"), "--check", fails=True, **known)
    assert f"cannot be read: {source}: Cannot initiate the connection to 203.0.113.1:3142 (203." in said
    known["__package_sources_updated"]["stdout"] = f"Err:2 {source}\n  404  Not Found [IP: 192.0.2.1 80]\n"
    said = play(tmp_path, role("package_sources", "lists"), "--check", fails=True, **known)
    assert "does not have a Release file." in said


@pytest.mark.parametrize(
    ("is_new", "stdout", "fails"),
    [
        (True, "Ign:1 http://m.example/debian trixie InRelease\n", True),
        (
            True,
            "Hit:1 http://m.example/debian trixie InRelease\n",
            False,
        ),  # of somebody else's source a note is enough
        (True, "Get:1 file:/srv/local ./ InRelease\nErr:2 http://m.example/debian trixie Release\n", True),
        (
            False,
            "Ign:1 http://m.example/debian trixie InRelease\n",
            False,
        ),  # a server is away for an hour, say
    ],
)
def test_a_new_proxy_through_which_nothing_is_read_is_no_note(
    is_new: bool, stdout: str, fails: bool, tmp_path: Path
) -> None:
    known: dict[str, Any] = {
        **UNCHANGED,
        "ansible_facts": {"distribution": "Debian"},
        "package_sources_proxy": "http://proxy.example:1",
        "__package_sources_debian": True,
        "__package_sources_apt": {"changed": is_new},
        "__package_sources_updated": {
            "rc": 100,
            "stdout": stdout,
            "stderr": "E: nothing",
            "stderr_lines": [],
        },
        "__package_sources_policy": {"stdout": "release v=13,o=Debian,a=stable"},
    }
    said = play(tmp_path, role("package_sources", "lists"), "--check", fails=fails, **known)
    assert ("the lists of packages cannot be read" in said) is fails
    assert ("remove the source if nobody needs it" in said) is not fails


# Of dpkg 1.21: one package printed its reason as an error, the other did not.
CONFIGURED = {
    "stdout": "Setting up beta (1.0) ...\nSetting up alpha (1.0) ...\nthe disk of alpha is upset\n",
    "stderr": "the disk of beta is upset\ndpkg: error processing package beta (--configure):\n installed "
    "beta package post-installation script subprocess returned error exit status 3\ndpkg: error processing "
    "package alpha (--configure):\n installed alpha package post-installation script subprocess returned "
    "error exit status 3\nErrors were encountered while processing:\n beta\n alpha",
}


@pytest.mark.parametrize("first", ["beta", "alpha"])
def test_the_words_of_a_package_that_cannot_be_finished(tmp_path: Path, first: str) -> None:
    whole = CONFIGURED["stderr"]
    errors = whole if first == "beta" else whole[whole.index("dpkg: error processing package alpha") :]
    known: dict[str, Any] = {
        "__package_sources_configured": {
            "rc": 1,
            "stdout": CONFIGURED["stdout"],
            "stderr": errors,
            "stderr_lines": errors.splitlines(),
        },
        "ansible_facts": {"python": {"executable": sys.executable}, "os_family": "Debian"},
        "bootstrap_login": "nobody",
        "__package_sources_state": {"stdout": '{"half": ["alpha", "beta"]}'},
    }
    tasks = role("package_sources", "finish")
    said = play(tmp_path, tasks, "--check", fails=True, **known)
    reason = f"installed {first} package post-installation script subprocess returned error exit status 3"
    assert f"cannot be finished: {reason}, after it printed: the disk of {first} is upset; mend" in said


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("proxy", "10.213.2.1:31420", "package_sources_proxy is no address of a proxy"),
        ("proxy", "ftp://proxy.example:21", "package_sources_proxy is no address"),
        ("proxy", f"http://me:{PASSWORD} @proxy.example", "package_sources_proxy is no address"),
        ("proxy", 'http://proxy.example";\nDPkg::Pre-Invoke {"id"};', "package_sources_proxy is no address"),
        ("proxy", "http://proxy.example:3128\n", "package_sources_proxy is no address"),
        ("proxy", f"http://me:{PASSWORD}%40@proxy.example:3128", ""),
        ("proxy", "socks5h://[fd00::1]:1080/", ""),
        ("proxy", "", ""),
        ("no_proxy", ["mirror.example", "http://b.example"], "no_proxy: http://b.example is no name"),
        ("no_proxy", ["b.example:80"], "no_proxy: b.example:80 is no name"),
        ("no_proxy", ["10.0.0.1", "[fd00::1]", "mirror.example"], ""),
        ("mirror", "mirror.example/debian", "package_sources_mirror is no address of a mirror"),
        ("mirror", f"http://me:{PASSWORD}@m.example/a b", "package_sources_mirror is no address"),
        ("mirror", "https://m.example/all", ""),
        ("lock_timeout", -5, "must not be below 0; they are -5 and 300"),
        ("free_mib", -1, "must not be below 0; they are 300 and -1"),
        ("lock_timeout", 0, ""),
    ],
)
def test_values_that_would_break_the_files_of_sources_are_refused(
    variable: str, value: object, sentence: str, tmp_path: Path
) -> None:
    known = {"ansible_facts": FACTS, f"package_sources_{variable}": value}
    said = play(tmp_path, role("package_sources", "refuse"), "--check", fails=bool(sentence), **known)
    assert sentence in said
    assert PASSWORD not in said


@pytest.mark.parametrize(
    ("stated", "sentence"),
    [
        ({"cudda": {}}, "cudda is unknown; there are container_toolkit, cuda, doca, docker"),
        ({"cuda": {"fingerprint": ["AB"]}}, "cuda: fingerprint is unknown; one may state url, key_url"),
        ({"cuda": {"url": "packages.example/cuda"}}, "cuda: url is no address"),
        (
            {"cuda": {"url": f"https://me:{PASSWORD}@p.example/a b", "key_url": "x"}},
            "cuda: url and key_url is no",
        ),
        ({"cuda": {"suite": "a\nTrusted: yes"}}, "has blanks or quotes"),
        ({"cuda": {"components": ["main", "a b"]}}, '"a b" has blanks or quotes'),
        ({"cuda": {"options": {"gpgcheck": "1\nsslverify=0"}}}, "is no single line"),
        ({"cuda": {"options": {"gpgcheck": 0, "exclude": "mft* a"}, "url": "https://p.example/c/"}}, ""),
        ({"cuda": {"enabled": False}}, ""),
        ({"docker": {"suite": "bookworm", "components": ["stable"], "key_url": "file:/srv/key"}}, ""),
    ],
)
def test_repositories_that_are_misspelt_are_refused(
    stated: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    facts = {"os_family": "Debian", "distribution": "Debian", "distribution_major_version": "12"}
    known = {
        "ansible_facts": {**facts, "architecture": "x86_64", "distribution_release": "bookworm"},
        "vendor_sources_repository": "docker" if "docker" in stated else "cuda",
        "vendor_sources_repositories": stated,
    }
    said = play(tmp_path, role("vendor_sources", "refuse"), "--check", fails=bool(sentence), **known)
    assert sentence in said
    assert PASSWORD not in said
