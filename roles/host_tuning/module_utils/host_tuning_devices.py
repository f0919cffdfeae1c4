"""Settings of devices, which forget them at a reboot. Python 3.8 or later."""

import glob
import json
import os

from ansible.module_utils.host_tuning_base import File, Kind, Later, do, run, text_of

SYS = "/sys"
RUN = "/run/runkit-tuning"  # of what cannot be read back; gone after a reboot, as the settings are


class Acs(Kind):
    """Access control services of PCI bridges, which send traffic between GPUs through the root; off is 0."""

    ACS, FIRST, CONTROL = 0x0D, 0x100, 6  # id and place of extended capabilities, PCI Express 5.0, 7.7.8

    def bridges(self):
        """Yield the configuration file of each bridge, and where its control word lies."""
        for folder in sorted(glob.glob(SYS + "/bus/pci/devices/*")):
            if not (text_of(folder + "/class") or "").startswith("0x0604"):
                continue
            with open(folder + "/config", "rb") as file:
                config = file.read()
            place = self.FIRST
            for _ in range(48):  # a chain of broken hardware may go in circles
                header = int.from_bytes(config[place : place + 4], "little")
                if place + 8 > len(config) or place < self.FIRST or header in (0, 0xFFFFFFFF):
                    break
                if header & 0xFFFF == self.ACS:
                    yield folder + "/config", place + self.CONTROL
                    break
                place = header >> 20 & 0xFFC

    def read(self):
        state = {}
        for path, place in self.bridges():
            with open(path, "rb") as file:
                file.seek(place)
                state[path] = int.from_bytes(file.read(2), "little")
        return state

    def matches(self, state):
        return not any(state.values())

    def write(self):
        self.restore(dict.fromkeys(self.read(), 0))

    def restore(self, before):
        for path, place in self.bridges():
            if path in before:
                with open(path, "r+b", buffering=0) as file:
                    file.seek(place)
                    file.write(before[path].to_bytes(2, "little"))


class GpuClocks(Kind):
    """The clocks of GPUs: ``value`` is a mapping of model to the options of nvidia-smi that set them.

    Locked clocks (-lgc) cannot be asked for: a file that is gone after a reboot, as they are, remembers them.
    """

    FIELDS = (
        "uuid,name,clocks.applications.memory,clocks.applications.graphics,"
        "clocks.default_applications.memory,clocks.default_applications.graphics"
    )
    MARKER = RUN + "/gpu_clocks.json"

    def read(self):
        done = run("nvidia-smi", "--query-gpu=" + self.FIELDS, "--format=csv,noheader,nounits")
        if done.returncode != 0:
            return None
        locked = json.loads(text_of(self.MARKER) or "{}")
        rows = [[word.strip() for word in line.split(",")] for line in done.stdout.splitlines()]
        return {
            uuid: {
                "model": model,
                "applications": memory + "," + graphics,
                "default": of_memory + "," + of_graphics,
                "locked": locked.get(uuid, ""),
            }
            for uuid, model, memory, graphics, of_memory, of_graphics in rows
        }

    def wrong(self, state):
        """Yield GPU and options where the clocks are not as wanted."""
        for uuid, gpu in state.items():
            option, _, clocks = self.value.get(gpu["model"], "").partition(" ")
            if option and clocks != gpu["applications" if option == "-ac" else "locked"]:
                yield uuid, option, clocks

    def matches(self, state):
        return state is not None and not list(self.wrong(state))

    def write(self):
        state = self.read()
        if state is None:
            raise Later("GPU clocks are not set: nvidia-smi does not answer; provision again once it does")
        for uuid, option, clocks in self.wrong(state):
            self.reset(uuid, state[uuid])  # never both: an option that was stated before does not stay
            do("nvidia-smi", "-i", uuid, option, clocks)
            if option == "-lgc":
                self.remember(uuid, clocks)

    def reset(self, uuid, gpu):
        if gpu["locked"]:
            do("nvidia-smi", "-i", uuid, "-rgc")
            self.remember(uuid, "")
        if gpu["applications"] != gpu["default"]:
            do("nvidia-smi", "-i", uuid, "-rac")

    def remember(self, uuid, clocks):
        """Note the locked clocks of a GPU; "" where there are none."""
        locked = dict(json.loads(text_of(self.MARKER) or "{}"), **{uuid: clocks})
        os.makedirs(RUN, exist_ok=True)
        File(self.MARKER, json.dumps(locked)).write()

    def restore(self, before):
        for uuid, gpu in (self.read() or {}).items():
            was = before.get(uuid, gpu) if before else dict(gpu, applications=gpu["default"])
            if gpu["locked"] or gpu["applications"] != was["applications"]:
                self.reset(uuid, gpu)
                if was["applications"] != gpu["default"]:
                    do("nvidia-smi", "-i", uuid, "-ac", was["applications"])
        if os.path.exists(self.MARKER):
            os.unlink(self.MARKER)
            os.rmdir(RUN)
