"""Settings that packages, services and their programs hold. Python 3.8 or later."""

import fcntl
import fnmatch
import os
import re
import time

from ansible.module_utils.host_tuning_base import Kind, Refused, do, run, text_of

APT = ["apt-get", "--yes", "-o", "DPkg::Lock::Timeout=300"]
# Of what came for a package, also that which others merely recommend: they did without it before.
STRICTLY = [
    word for each in ("Recommends", "Suggests") for word in ("-o", f"APT::AutoRemove::{each}Important=false")
]


LOCK, PATIENCE_S = "/var/lib/dpkg/lock-frontend", 300.0


def settled():
    """Wait until no apt is at work, that of a call that was broken off say: it would come after us."""
    end = time.monotonic() + PATIENCE_S
    while os.path.exists(LOCK):
        with open(LOCK, "r+b") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                if time.monotonic() > end:
                    raise Refused("apt has been at work for 5 minutes; end it, or wait") from None
        time.sleep(0.5)


class Service(Kind):
    """A service of systemd: enabled and running, or neither."""

    def read(self):
        told = do("systemctl", "show", "--property=LoadState,UnitFileState,ActiveState", self.name)
        said = dict(line.split("=", 1) for line in told.splitlines() if "=" in line)
        if said.get("LoadState") == "not-found":
            return None
        return {
            "enabled": said.get("UnitFileState") == "enabled",
            "active": said.get("ActiveState") in ("active", "activating", "reloading"),
        }

    def matches(self, state):
        return state == {"enabled": self.value, "active": self.value} or (state is None and not self.value)

    def write(self):
        do("systemctl", "enable" if self.value else "disable", "--now", self.name)

    def restore(self, before):
        now = self.read()
        if before is None or now is None:
            return
        if now["enabled"] != before["enabled"]:
            do("systemctl", "enable" if before["enabled"] else "disable", self.name)
        if now["active"] != before["active"]:
            do("systemctl", "start" if before["active"] else "stop", self.name)


class Package(Kind):
    """A package that is installed. Undone, it goes, and with it what came for it and nobody else needs."""

    def __init__(self, name, value=True):
        super().__init__(name, value)
        self.debian = os.path.exists("/usr/bin/dpkg-query")

    def installed(self):
        """Return the names of all packages that are installed."""
        query = ("rpm", "--query", "--all", "--queryformat", "%{NAME}\\n")
        if self.debian:
            query = ("dpkg-query", "--show", "--showformat", "${db:Status-Abbrev} ${Package}\\n")
        lines = do(*query).splitlines()
        return sorted(line.split()[-1] for line in lines if not self.debian or line.startswith(("ii", "hi")))

    def read(self):
        return self.name in self.installed()

    def record(self, state):
        return {"installed": state, "packages": "" if state else " ".join(self.installed())}

    def write(self):
        tool = [*APT, "--no-install-recommends"] if self.debian else ["dnf", "--assumeyes"]
        do(*tool, "install", self.name)

    def restore(self, before):
        if before["installed"] or not self.read():
            return
        if not self.debian:  # dnf itself removes what came for it
            do("dnf", "--assumeyes", "remove", self.name)
            return
        came = self.came(set(before["packages"].split()))
        going = self.going("purge", *came)
        if not going <= came:  # something else needs one of them by now
            going = self.going("autoremove", self.name) & came
        do(*APT, "purge", *sorted(going))

    def came(self, before):
        """Return this package and those that were installed because of it, for nobody asked for them."""
        listed = do("apt-cache", "depends", "--recurse", "--installed", "--important", self.name)
        depended = re.findall(r"^(?: [ |](?:Pre)?Depends:)? *<?([^\s:<>]+)", listed, re.MULTILINE)
        because = {*depended, *self.going("autoremove", self.name)}
        return {self.name} | (because & set(do("apt-mark", "showauto").split()) - before)

    def going(self, *words):
        told = do(*APT, *STRICTLY, "--simulate", "--purge", *words)
        return set(re.findall(r"^(?:Purg|Remv) ([^\s:]+)", told, re.MULTILINE))


class Tuned(Kind):
    """The profile of tuned, which itself remembers what it changed and takes that back."""

    def read(self):
        profile, mode = (text_of("/etc/tuned/" + name) for name in ("active_profile", "profile_mode"))
        return {"profile": profile or "", "mode": mode or "manual"}

    def matches(self, state):
        return state["profile"] == self.value

    def write(self):
        do("tuned-adm", "profile", *self.value.split())

    def restore(self, before):
        if self.read() == before or run("tuned-adm", "--version").returncode == 127:
            return
        if before["mode"] == "auto":
            do("tuned-adm", "auto_profile")
        else:
            do("tuned-adm", *(["profile", *before["profile"].split()] if before["profile"] else ["off"]))


class KernelHold(Kind):
    """The packages of the kernel stay at their version: ``name`` is a list of patterns, with commas."""

    LOCKS = "/etc/dnf/plugins/versionlock.list"

    def read(self):
        package = Package("")
        ours = [
            name
            for name in package.installed()
            if any(fnmatch.fnmatchcase(name, each) for each in self.name.split(","))
        ]
        if package.debian:
            held = do("apt-mark", "showhold").split()
        else:
            held = re.findall(r"^([a-z-]+)-\d", text_of(self.LOCKS) or "", re.MULTILINE)
        return {name: name in held for name in ours}

    def matches(self, state):
        return all(state.values())

    def write(self):
        self.turn("hold", "add", [name for name, held in self.read().items() if not held])

    def restore(self, before):
        held = [name for name, held in self.read().items() if held]
        self.turn("unhold", "delete", [name for name in held if not before.get(name)])

    def turn(self, apt, dnf, names):
        if names:
            do(*(["apt-mark", apt] if Package("").debian else ["dnf", "versionlock", dnf]), *names)
