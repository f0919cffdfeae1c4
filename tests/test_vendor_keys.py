"""The keys of vendors: what is read of them against gpg, which made them, and hostile files."""

from __future__ import annotations

import base64
import doctest
import http.server
import importlib.util
import itertools
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from kit import ROOT
from plays import play, role


def plugin() -> ModuleType:
    path = ROOT / "roles" / "vendor_sources" / "filter_plugins" / "vendor_sources.py"
    spec = importlib.util.spec_from_file_location("vendor_sources", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SOURCES = plugin()


class Gpg:
    """The real one, with a folder of its own."""

    def __init__(self, home: str) -> None:
        self.always = ["gpg", "--homedir", home, "--batch", "--quiet", "--passphrase", ""]

    def __call__(self, *words: str, stdin: bytes | None = None) -> bytes:
        argv = [*self.always, "--pinentry-mode", "loopback", *words]
        return subprocess.run(argv, input=stdin, capture_output=True, check=True).stdout

    def fingerprints(self, *words: str, stdin: bytes | None = None) -> list[str]:
        """Of primary keys alone."""
        lines = self("--with-colons", *words, stdin=stdin).decode().splitlines()
        kinds = [
            (line.split(":")[0], line.split(":")[9]) for line in lines if line[:3] in ("pub", "sub", "fpr")
        ]
        return sorted(name for (kind, _), (_, name) in itertools.pairwise(kinds) if kind == "pub")


@pytest.fixture(scope="module")
def gpg() -> Iterator[Gpg]:
    """With two keys, one of them with a subkey and an older, long kind."""
    if shutil.which("gpg") is None:
        pytest.skip("gpg is not installed, and reads the keys that this reader is compared with")
    home = tempfile.mkdtemp(prefix="gpg-")  # short: its agent's socket lies in there
    tool = Gpg(home)
    tool("--quick-generate-key", "Vendor One", "ed25519", "sign", "never")
    tool("--quick-generate-key", "Vendor Two", "rsa2048", "sign", "never")
    two = next(each for each in tool.fingerprints("--list-keys", "Two"))
    tool("--quick-add-key", two, "rsa2048", "encr", "never")
    yield tool
    subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], capture_output=True)
    shutil.rmtree(home, ignore_errors=True)


def read(raw: bytes) -> dict[str, object]:
    found: dict[str, object] = SOURCES.key(base64.b64encode(raw).decode())
    return found


@pytest.mark.parametrize("form", [["--armor"], []], ids=["armored", "binary"])
@pytest.mark.parametrize("names", [["One"], ["Two"], ["One", "Two"]], ids=["one", "subkey", "both"])
def test_every_primary_key_is_found_as_gpg_finds_it(gpg: Gpg, form: list[str], names: list[str]) -> None:
    exported = gpg(*form, "--export", *names)
    known = gpg.fingerprints("--list-keys", *names)
    assert len(known) == len(names)
    found = read(exported)
    assert found["fingerprints"] == known
    assert found["error"] == ""
    # What is put in place is what was read, and gpg reads the same.
    placed = str(found["armored"]).encode()
    assert gpg.fingerprints("--show-keys", stdin=placed) == known
    assert read(placed)["armored"] == found["armored"]


def test_several_blocks_in_one_file(gpg: Gpg) -> None:
    """gpg itself reads the first alone: another reader would take a key that nobody compared."""
    blocks = [gpg("--armor", "--export", name) for name in ("One", "Two")]
    found = read(b"# two of them\n" + b"\n".join(blocks).replace(b"\n", b"\r\n"))
    assert found["fingerprints"] == gpg.fingerprints("--list-keys")
    assert gpg.fingerprints("--show-keys", stdin=str(found["armored"]).encode()) == found["fingerprints"]


def test_secret_keys_and_signatures_are_no_keys_of_a_vendor(gpg: Gpg) -> None:
    for form in (["--armor"], []):
        assert (
            read(gpg(*form, "--export-secret-keys", "One"))["error"]
            == "it holds something else than public keys"
        )
        assert read(gpg(*form, "--detach-sign", stdin=b"x"))["fingerprints"] == []


# RFC 9580, appendix A.3: a certificate of version 6, whose fingerprint the text of that section states.
VERSION_6 = """
-----BEGIN PGP PUBLIC KEY BLOCK-----

xioGY4d/4xsAAAAg+U2nu0jWCmHlZ3BqZYfQMxmZu52JGggkLq2EVD34laPCsQYf
GwoAAABCBYJjh3/jAwsJBwUVCg4IDAIWAAKbAwIeCSIhBssYbE8GCaaX5NUt+mxy
KwwfHifBilZwj2Ul7Ce62azJBScJAgcCAAAAAK0oIBA+LX0ifsDm185Ecds2v8lw
gyU2kCcUmKfvBXbAf6rhRYWzuQOwEn7E/aLwIwRaLsdry0+VcallHhSu4RN6HWaE
QsiPlR4zxP/TP7mhfVEe7XWPxtnMUMtf15OyA51YBM4qBmOHf+MZAAAAIIaTJINn
+eUBXbki+PSAld2nhJh/LVmFsS+60WyvXkQ1wpsGGBsKAAAALAWCY4d/4wKbDCIh
BssYbE8GCaaX5NUt+mxyKwwfHifBilZwj2Ul7Ce62azJAAAAAAQBIKbpGG2dWTX8
j+VjFM21J0hqWlEg+bdiojWnKfA5AQpWUWtnNwDEM0g12vYxoWM8Y81W+bHBw805
I8kWVkXU6vFOi+HWvv/ira7ofJu16NnoUkhclkUrk0mXubZvyl4GBg==
-----END PGP PUBLIC KEY BLOCK-----
"""


def test_version_6() -> None:
    found = read(VERSION_6.encode())
    assert found["fingerprints"] == ["CB186C4F0609A697E4D52DFA6C722B0C1F1E27C18A56708F6525EC27BAD9ACC9"]


BEGIN = "-----BEGIN PGP PUBLIC KEY BLOCK-----"


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        pytest.param(b"", "it holds no public key", id="nothing"),
        pytest.param(b"<html>please log in</html>", "it is no OpenPGP file", id="page of a portal"),
        pytest.param(b"\x99\xff\xff\x04", "it ends too early", id="longer than the file"),
        pytest.param(b"\xc6\xe1\x04", "its packets have no length", id="in parts"),
        pytest.param(b"\x9b\x04", "its packets have no length", id="without length"),
        pytest.param(b"\xc6\x01\x03", "it holds a key of version 3, which is not supported", id="version 3"),
        pytest.param(b"\x99" * (1 << 20), "it is too long for a key", id="endless"),
        pytest.param(f"{BEGIN}\n\nAAAA".encode(), "it holds something else than public keys", id="cut"),
    ],
)  # fmt: skip
def test_what_is_no_key(raw: bytes, error: str) -> None:
    assert read(raw) == {"fingerprints": [], "armored": "", "error": error}


def test_damaged_keys_never_raise(gpg: Gpg) -> None:
    """A key with bytes changed or missing is another key or none."""
    chance = random.Random(7)
    whole = gpg("--export")
    for _ in range(500):
        raw = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        found = read(bytes(raw[: chance.randint(1, len(raw))]))
        assert bool(found["error"]) != bool(found["fingerprints"])


# --- where things are ----------------------------------------------------------------------

TOOLKIT = SOURCES.re.escape("nvidia.github.io/libnvidia-container/")
WITHOUT = {
    "list": (
        "# of nvidia.github.io/libnvidia-container/\ndeb [signed-by=/x] https://nvidia.github.io/libnvidia-container/"
        "stable/deb/$(ARCH) /\ndeb http://site.example/debian x main\n",
        "# of nvidia.github.io/libnvidia-container/\ndeb http://site.example/debian x main\n",
    ),
    "sources": (
        "Types: deb\nURIs: https://nvidia.github.io/libnvidia-container/stable\nSuites: /\n\n"
        "Types: deb\nURIs: http://site.example/debian\nSuites: x\nComponents: main\n",
        "\nTypes: deb\nURIs: http://site.example/debian\nSuites: x\nComponents: main\n",
    ),
    "repo": (
        "[toolkit]\nbaseurl=https://nvidia.github.io/libnvidia-container/stable/rpm/x\n\n"
        "[site]\nbaseurl=http://site.example/\n",
        "[site]\nbaseurl=http://site.example/\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", WITHOUT)
def test_what_else_names_a_repository_is_taken_out_and_the_rest_stays(kind: str) -> None:
    text, left = WITHOUT[kind]
    assert SOURCES.without(text, TOOLKIT) == left
    assert SOURCES.without(left, TOOLKIT) == left


def test_files_of_others_keep_their_modes(tmp_path: Path) -> None:
    """apt reads its sources as a user without rights, and other users ask it what there is."""
    modes = {0o644: "site.list", 0o600: "with-a-password.list", 0o664: "of-a-group.list"}
    for mode, name in modes.items():
        (tmp_path / name).write_text(WITHOUT["list"][0])
        (tmp_path / name).chmod(mode)
    known: dict[str, Any] = {
        "vendor_sources_repository": "container_toolkit",
        "__vendor_sources_folder": str(tmp_path),
        "__vendor_sources_file": str(tmp_path / "runkit-container-toolkit.sources"),
        "__vendor_sources_template": "debian.j2",
        "__vendor_sources_row": {},
        "__vendor_sources_url": "http://site.example/",
        "__vendor_sources_key_file": "/x",
        "__vendor_sources_debian": False,  # and so nothing is asked of apt
    }
    play(tmp_path, role("vendor_sources", "repository"), **known)
    for mode, name in modes.items():
        assert (tmp_path / name).read_text() == WITHOUT["list"][1]
        assert (tmp_path / name).stat().st_mode & 0o777 == mode


def test_a_repository_that_is_disabled_needs_no_address(tmp_path: Path) -> None:
    """Ansible asks of tasks that it skips too whether they may be told, and warns where that is undefined."""
    facts = {"os_family": "Debian", "distribution": "Debian", "distribution_release": "trixie"}
    facts |= {"distribution_major_version": "13", "architecture": "x86_64"}
    said = play(
        tmp_path,
        [{"ansible.builtin.include_role": {"name": "vendor_sources"}}],
        ansible_facts=facts,
        vendor_sources_repository="doca",
        vendor_sources_repositories={"doca": {"enabled": False}},
        package_sources_proxy="",
        package_sources_no_proxy=[],
        __vendor_sources_folder=str(tmp_path),
    )
    assert "no_log" not in said


def test_examples() -> None:
    assert doctest.testmod(SOURCES).attempted > 3
    assert doctest.testmod(SOURCES).failed == 0


def test_pins_are_whole_fingerprints() -> None:
    """A short id can be made to fit by anybody."""
    text = (ROOT / "roles" / "vendor_sources" / "vars" / "main.yml").read_text()
    pins = re.findall(r"fingerprints: \[(.+)\]", text)
    assert len(pins) >= 6
    assert all(re.fullmatch(r"[0-9A-F]{40}", pin) for pin in pins)


def test_a_file_is_fetched_with_the_password_of_its_address() -> None:
    asked: list[tuple[str, str | None]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["Authorization"]))
            self.send_response(200 if self.path == "/key" else 404)
            self.end_headers()
            self.wfile.write(b"a key")

        def log_message(self, *words: object) -> None:
            pass

    program = ROOT / "roles" / "vendor_sources" / "files" / "fetch.py"
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"127.0.0.1:{server.server_address[1]}"
        said = []
        for path in ("key", "none"):
            wanted = json.dumps({"url": f"http://me:hush%21@{place}/{path}", "proxy": ""})
            done = subprocess.run([sys.executable, program], input=wanted, capture_output=True, text=True)
            said.append(json.loads(done.stdout))
        server.shutdown()
    # "me:hush!" by coreutils' base64
    assert asked == [("/key", "Basic bWU6aHVzaCE="), ("/none", "Basic bWU6aHVzaCE=")]
    assert said[0] == {"content": "YSBrZXk="}
    assert said[1] == {"error": "the server answers 404 Not Found"}
