"""Settings in the files of the kernel, /proc and /sys. Python 3.8 or later."""

import glob
import os
import re

from ansible.module_utils.host_tuning_base import Kind, Refused, text_of

PROC = "/proc"
SYS = "/sys"


class Knob(Kind):
    """A file of the kernel with one value. ``where`` is how its refusal is called."""

    remedy = "leave it out for this host"

    def put(self, path, text):
        try:
            with open(path, "w", encoding="ascii") as file:
                file.write(text)
        except OSError as error:
            raise Refused(f"{self.name} is not taken ({error.strerror}); {self.remedy}") from None


class Sysctl(Knob):
    """A setting of the kernel by its name in /proc/sys."""

    OF_MODULES = ("sunrpc.",)  # there once the module is; a file under modprobe.d has its options until then
    remedy = "inside a container the machine around it sets it, so leave it out for this host"

    def __init__(self, name, value=None):
        super().__init__(name, None if value is None else " ".join(str(value).split()))
        separated = name if "/" in name else name.replace(".", "/")  # as sysctl.d has it, for names with dots
        self.path = os.path.join(PROC, "sys", separated)

    def matches(self, state):
        late = state is None and self.name.startswith(self.OF_MODULES)
        return late or super().matches(state)

    def read(self):
        text = text_of(self.path)
        return None if text is None else " ".join(text.split())

    def refusal(self):
        if not os.path.exists(self.path) and not self.name.startswith(self.OF_MODULES):
            return (
                f"host_tuning_sysctl: {self.name} is no setting of this kernel; "
                "correct the name, or leave it out"
            )
        most = self.most_pages() if self.name == "vm.nr_hugepages" else None
        if most is not None and not (self.value.isdigit() and int(self.value) <= most):
            return (
                f"host_tuning_hugepages: {self.value} must be from 0 to {most}, "
                "which is all memory of this host; correct it"
            )
        return ""

    @staticmethod
    def most_pages():
        """How many huge pages of the default size the memory holds; None where the kernel does not say."""
        sizes = dict(
            re.findall(r"^(MemTotal|Hugepagesize):\s+(\d+) kB", text_of(PROC + "/meminfo") or "", re.M)
        )
        return int(sizes["MemTotal"]) // int(sizes["Hugepagesize"]) if len(sizes) == 2 else None

    def write(self):
        self.put(self.path, self.value)
        if self.read() != self.value:
            raise Refused(
                f"{self.name} was set to {self.value} and is {self.read()}; "
                "the kernel cannot give more now, ask for less or reboot"
            )

    def restore(self, before):
        if before is not None and os.path.exists(self.path) and self.read() != before:
            self.put(self.path, before)


class Files(Knob):
    """The same value in several files of the kernel: a mapping of file to value. See the kinds below."""

    def read(self):
        found = {path: text_of(path) for path in self.paths()}
        return {path: text for path, text in sorted(found.items()) if text is not None}

    def matches(self, state):
        return all(text == self.value for text in state.values())

    def write(self):
        for path, text in self.read().items():
            if text != self.value:
                self.put(path, self.value)

    def restore(self, before):
        for path, text in self.read().items():
            if before.get(path, text) != text:
                self.put(path, before[path])


class Governor(Files):
    """How the frequency of all cores is chosen."""

    remedy = "the cores know no such governor; see scaling_available_governors, or leave it out for this host"

    def paths(self):
        return glob.glob(SYS + "/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")

    def matches(self, state):
        return bool(state) and super().matches(state)

    def write(self):
        if not self.paths():
            raise Refused(
                "this host lets nobody choose the frequency of its cores, as in a virtual machine; "
                "leave host_tuning_governor empty for it"
            )
        super().write()


class ReadAhead(Files):
    """How many KiB are read ahead from NFS mounts that are there already; a udev rule is for later ones."""

    def paths(self):
        lines = (text_of(PROC + "/self/mountinfo") or "").splitlines()
        mounts = [line.split() for line in lines if re.search(r" - nfs4? ", line)]
        return [SYS + "/class/bdi/" + fields[2] + "/read_ahead_kb" for fields in mounts]
