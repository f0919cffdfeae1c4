"""Tell what is on this host of the GPU driver: ``driver_state.py KERNEL [ROOT]``; another ROOT is for tests.

Prints a JSON object:

* packages: name to version of what is installed in full; held: names that apt holds
* module: version and license of the kernel module that KERNEL has; elsewhere: other kernels that have one
* loaded: the version that runs; nouveau: whether that one is loaded
* blacklisted: whether nouveau is kept from being loaded, from the initial RAM disk of KERNEL too
* runfile: whether a .run file left its uninstaller
* ofed: whether an OFED is there
* secure_boot: whether the firmware says so
* log, log_line: where DKMS tells of the last build that failed, and the last line there

Python 3.8 or later, standard library only.
"""

import glob
import json
import os
import re
import subprocess
import sys

PACKAGES = re.compile(
    r"(.*nvidia.*|lib(cuda|xnvctrl)\d?.*|cuda-drivers.*|dkms|linux-(image|headers|modules)-.*|kernel-(devel|headers).*"
    r"|python3-dnf-plugin-versionlock)"
)
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
MODULES = ("nvidia", "nvidia-current", "nvidia-current-open")  # Debian gives its own names to what it builds
FIELDS = ("version", "license")
KEPT_AWAY = re.compile(r"^\s*(blacklist|install)\s+nouveau\b|^\s*alias\s+nouveau\s+off", re.MULTILINE)
RAM_DISKS = ("initrd.img-%s", "initramfs-%s.img")  # of Debian's family, and of Enterprise Linux


def output(*argv):
    """Return what a command prints, or "" where it fails or is not there."""
    try:
        return subprocess.run(
            argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
        ).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        return ""


def text(path):
    """Return what a file says, or "" where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def packages(root):
    """Return the installed packages that matter, and those of them that are held.

    Kernels may be installed side by side; on Enterprise Linux each has an entry with its version.
    """
    debian = ["dpkg-query", "--admindir=" + os.path.join(root, "var/lib/dpkg"), "-W", "-f"]
    shown = output(*debian, "${db:Status-Abbrev} ${Package} ${Version}\\n")
    if not shown:
        name, version = "%{NAME}", "%{VERSION}-%{RELEASE}"
        each = f"ii {name} {version}\\nii {name}-{version}.%{{ARCH}} {version}\\n"
        shown = output("rpm", "--root", root, "-qa", "--qf", each)
    rows = [line.split() for line in shown.splitlines() if len(line.split()) == 3]
    rows = [row for row in rows if PACKAGES.fullmatch(row[1])]
    installed = {name: version for state, name, version in rows if state[1:2] == "i"}
    return installed, sorted(name for state, name, _ in rows if state[:1] == "h")


def module(kernel, root):
    """Return version and license of the kernel's module; {} where it has none."""
    for name in MODULES:
        said = {
            field: output("modinfo", "-b", root, "-k", kernel, "-F", field, name).strip() for field in FIELDS
        }
        if all(said.values()):
            return said
    return {}


def elsewhere(kernel, root):
    """Return the other kernels that modprobe would find the module for."""
    known = re.compile(r"^\S*/(" + "|".join(MODULES) + r")\.ko(\.\w+)?:", re.MULTILINE)
    tables = sorted(glob.glob(os.path.join(root, "lib/modules/*/modules.dep")))
    found = [os.path.basename(os.path.dirname(path)) for path in tables if known.search(text(path))]
    return [each for each in found if each != kernel]


def blacklisted(kernel, root):
    """Return whether a file keeps nouveau away, one that the kernel's RAM disk is not older than."""
    disks = [os.path.join(root, "boot", name % kernel) for name in RAM_DISKS]
    made = max([os.path.getmtime(path) for path in disks if os.path.exists(path)], default=float("inf"))
    settings = [
        path
        for each in ("etc", "run", "usr/lib", "lib")
        for path in glob.glob(f"{root}/{each}/modprobe.d/*.conf")
    ]
    return any(KEPT_AWAY.search(text(path)) and os.path.getmtime(path) <= made for path in settings)


def failed_build(root):
    """Return path and last line of the youngest log of DKMS that is left beside a build."""
    logs = glob.glob(os.path.join(root, "var/lib/dkms/nvidia*/*/build/make.log"))
    path = max(logs, key=os.path.getmtime, default="")
    lines = [line.strip() for line in text(path).splitlines() if line.strip()] if path else []
    return path, lines[-1] if lines else ""


def main(kernel, root="/"):
    """Look at everything."""
    version = re.search(
        r"NVRM version:.*?(\d{3}\.\d+(?:\.\d+)?)", text(os.path.join(root, "proc/driver/nvidia/version"))
    )
    installed, held = packages(root)
    log, line = failed_build(root)
    state = {
        "packages": installed,
        "held": held,
        "module": module(kernel, root),
        "elsewhere": elsewhere(kernel, root),
        "loaded": version.group(1) if version else "",
        "nouveau": re.search(r"^nouveau ", text(os.path.join(root, "proc/modules")), re.MULTILINE)
        is not None,
        "blacklisted": blacklisted(kernel, root),
        "runfile": os.path.exists(os.path.join(root, "usr/bin/nvidia-uninstall")),
        "ofed": os.path.exists(os.path.join(root, "usr/bin/ofed_info")),
        "secure_boot": text(os.path.join(root, SECURE_BOOT))[4:5] == "\x01",
        "log": log,
        "log_line": line,
    }
    print(json.dumps(state))


if __name__ == "__main__":
    main(*sys.argv[1:])
