"""Stand-ins for the vendors' repositories: small packages of the same names, signed by a throw-away key.

The repositories of NVIDIA and Docker cannot be reached from a lab, and their packages are large. What is
tested with these is the way there: keys, pins, holds, mirrors, what is configured.

    with StandIns(lab, [Package("cuda-drivers", "580.95.05-1")]) as repository: ...

serves them over HTTP on the lab's own bridge, as HOST/PATH beneath one address, as ``vendor_sources_mirror``
expects it, and states that address and the key's fingerprint in the lab's inventory while the block lasts.
"""

from __future__ import annotations

import email.utils
import functools
import hashlib
import http.server
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import yaml
from hosts import Lab

DOCA = "3.2.3"
# Repository -> where its packages are, and its key; "*" is debian12 or debian13. Flat, docker's aside.
NVIDIA = "developer.download.nvidia.com/compute/cuda/repos"
TOOLKIT = "nvidia.github.io/libnvidia-container"
PLACES = {
    "cuda": [
        (f"{NVIDIA}/debian12/x86_64", f"{NVIDIA}/debian12/x86_64/3bf863cc.pub"),
        (f"{NVIDIA}/debian13/x86_64", f"{NVIDIA}/debian13/x86_64/8793F200.pub"),
    ],
    "container_toolkit": [
        (f"{TOOLKIT}/stable/deb/amd64", f"{TOOLKIT}/gpgkey"),
    ],
    "docker": [
        (f"download.docker.com/linux/debian/dists/{suite}", "download.docker.com/linux/debian/gpg")
        for suite in ("bookworm", "trixie")
    ],
    "doca": [
        (
            f"linux.mellanox.com/public/repo/doca/{DOCA}/debian12/x86_64",
            "www.mellanox.com/downloads/ofed/RPM-GPG-KEY-Mellanox-SHA256",
        )
    ],
}  # fmt: skip


class Package(NamedTuple):
    """A stand-in. ``files`` are path to text; DEBIAN/postinst and the like are scripts of the package.

    A text that begins with ``#!`` is a program. ``fields`` are more lines of its control file.
    """

    name: str
    version: str
    depends: str = ""
    files: Mapping[str, str] = {}
    repository: str = "cuda"
    fields: str = ""


class Key:
    """A key of gpg's own making. ``born`` and ``expires`` are seconds from now."""

    def __init__(self, *, born: int = -3600, expires: int | None = None) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="gpg-"))  # short: its agent's socket lies in there
        self.home.chmod(0o700)
        self.born = int(time.time()) + born
        end = "never" if expires is None else f"seconds={expires - born}"
        self.gpg("--quick-generate-key", "Stand-in for a vendor", "ed25519", "sign", end)
        shown = self.gpg("--with-colons", "--fingerprint")
        self.fingerprint = next(line.split(":")[9] for line in shown.splitlines() if line.startswith("fpr"))
        self.public = self.gpg("--armor", "--export")

    def gpg(self, *words: str, stdin: str | None = None) -> str:
        always = ["gpg", "--homedir", str(self.home), "--batch", "--quiet", "--passphrase", ""]
        when = ["--pinentry-mode", "loopback", "--faked-system-time", f"{self.born + 1}"]
        done = subprocess.run([*always, *when, *words], input=stdin, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def signed(self, text: str) -> str:
        return self.gpg("--clearsign", stdin=text)

    def close(self) -> None:
        subprocess.run(["gpgconf", "--homedir", str(self.home), "--kill", "all"], capture_output=True)
        shutil.rmtree(self.home, ignore_errors=True)


class StandIns:
    """The repositories of ``packages`` for ``lab``; ``requests`` are the paths that were asked for."""

    def __init__(self, lab: Lab, packages: Iterable[Package] = (), *, key: Key | None = None) -> None:
        self.lab, self.packages, self.key = lab, [Package(*each) for each in packages], key or Key()
        self.requests: list[str] = []
        self.folder = Path(tempfile.mkdtemp(prefix="standins-"))
        self.stated = lab.folder / "group_vars" / "all" / "standins.yml"

    def __enter__(self) -> StandIns:
        self.publish()
        self.serve()
        self.state()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stated.unlink(missing_ok=True)
        self.end()
        self.key.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- what the inventory states ---

    @property
    def variables(self) -> dict[str, object]:
        """What a host needs to take its packages from here."""
        return {
            "vendor_sources_mirror": self.url,
            "vendor_sources_repositories": {
                name: {"fingerprints": [self.key.fingerprint]} for name in PLACES
            },
            "vendor_sources_doca_version": DOCA,
            "package_sources_no_proxy": [self.address],
        }

    def state(self, **more: object) -> None:
        """Put it into the lab's inventory, with ``more`` in its place."""
        self.stated.write_text(yaml.safe_dump({**self.variables, **more}))

    # --- the server ---

    @property
    def address(self) -> str:
        """This machine's, on the lab's bridge."""
        return self.lab.address(self.lab.hosts[0]).rpartition(".")[0] + ".1"

    @property
    def url(self) -> str:
        return f"http://{self.address}:{self.port}"

    def serve(self) -> None:
        """Begin to answer; again at the same port after ``end``."""
        requests = self.requests

        class Handler(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *words: object) -> None:
                requests.append(self.path)

        port = getattr(self, "port", 0)
        handler = functools.partial(Handler, directory=str(self.folder))
        self.server = http.server.ThreadingHTTPServer((self.address, port), handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def end(self) -> None:
        """Answer no more; who connects is refused."""
        self.server.shutdown()
        self.server.server_close()

    # --- what is served ---

    def publish(self) -> None:
        """Write all of it, anew after ``packages`` or ``key`` changed."""
        self.publish_key()
        for name, places in PLACES.items():
            for folder, _ in places:
                self.index(name, folder)

    def publish_key(self) -> None:
        for places in PLACES.values():
            for _, path in places:
                self.write(path, self.key.public)

    def index(self, name: str, folder: str, *, key: Key | None = None, valid_for: int | None = None) -> None:
        """Write what there is in one repository. ``valid_for`` are the seconds from now until Valid-Until."""
        root, below = folder, ""
        if name == "docker":  # the one that is no flat repository
            root, below = folder.partition("/dists/")[0], "stable/binary-amd64/"
        entries = [self.built(root, each) for each in self.packages if each.repository == name]
        text = "\n".join(entries)
        self.write(f"{folder}/{below}Packages", text)
        until = "" if valid_for is None else f"Valid-Until: {stamp(valid_for)}\n"
        digest = hashlib.sha256(text.encode()).hexdigest()
        release = (
            f"Origin: stand-in\nLabel: stand-in for {name}\nSuite: {Path(folder).name}\n"
            f"Codename: {Path(folder).name}\nDate: {stamp(-1800)}\n{until}Architectures: amd64\n"
            f"Components: stable\nSHA256:\n {digest} {len(text.encode())} {below}Packages\n"
        )
        self.write(f"{folder}/InRelease", (key or self.key).signed(release))

    def built(self, root: str, package: Package) -> str:
        """Build a package, and return its paragraph of the index."""
        name = f"{package.name}_{package.version.replace(':', '%3a')}_amd64.deb"
        control = (
            f"Package: {package.name}\nVersion: {package.version}\nArchitecture: amd64\n"
            f"Maintainer: Stand-in <nobody@example.invalid>\nDescription: stand-in, for tests only\n"
            + (f"Depends: {package.depends}\n" if package.depends else "")
            + "".join(f"{line}\n" for line in package.fields.splitlines())
        )
        with tempfile.TemporaryDirectory() as folder:
            for path, text in {**package.files, "DEBIAN/control": control}.items():
                target = Path(folder, path.lstrip("/"))
                target.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
                target.write_text(text)
                target.chmod(0o755 if text.startswith("#!") else 0o644)
            target = self.folder / root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            argv = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", folder, str(target)]
            # Two suites name the same file: built for the second one, it still has the first one's checksum.
            env = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
            subprocess.run(argv, check=True, capture_output=True, env=env)
        raw = target.read_bytes()
        return f"{control}Filename: {name}\nSize: {len(raw)}\nSHA256: {hashlib.sha256(raw).hexdigest()}\n"

    def write(self, path: str, text: str) -> None:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def stamp(seconds: float) -> str:
    """As apt wants it, in seconds from now."""
    return email.utils.formatdate(time.time() + seconds, usegmt=True).replace("GMT", "UTC")
