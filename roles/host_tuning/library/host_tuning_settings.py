#!/usr/bin/python
"""Ansible module: settings of a host as wanted, and back to what was before where no longer wanted.

``wanted`` is the whole list, of mappings with ``kind``, ``name`` and ``value``; kinds are explained in
host_tuning_base.
What was before is written to ``record`` before anything changes, once: a later run does not replace it. What
is recorded and not wanted is brought back, the newest first, then its record goes. So ``wanted: []`` undoes
all, whatever was broken off before. Returns ``restored`` and ``set``, the names of settings, and ``notes``.
Python 3.8 or later.
"""

import fcntl
import json
import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.host_tuning_base import File, Later, Refused
from ansible.module_utils.host_tuning_devices import Acs, GpuClocks
from ansible.module_utils.host_tuning_kernel import Governor, ReadAhead, Sysctl
from ansible.module_utils.host_tuning_programs import KernelHold, Package, Service, Tuned, settled

KINDS = {
    "sysctl": Sysctl,
    "file": File,
    "service": Service,
    "package": Package,
    "tuned": Tuned,
    "governor": Governor,
    "read_ahead": ReadAhead,
    "acs": Acs,
    "gpu_clocks": GpuClocks,
    "kernel_hold": KernelHold,
}
LONGEST = 400  # of a state in a difference


class Record:
    """What was before, in the order in which it was written down, in a file that survives a power loss."""

    def __init__(self, path):
        self.path = path
        try:
            with open(path, encoding="utf-8") as file:
                self.entries = [dict(each) for each in json.load(file)["before"]]
            for each in self.entries:
                KINDS[each["kind"]](each["name"]).before = each["before"]
        except FileNotFoundError:
            self.entries = []
        except (ValueError, KeyError, TypeError) as error:
            raise Refused(
                f"{path} is no record of what was before ({error!r}); mend it, or undo by hand and remove it"
            ) from None

    def holds(self, kind, name):
        return any((each["kind"], each["name"]) == (kind, name) for each in self.entries)

    def drop(self, entry):
        self.entries.remove(entry)
        self.save()

    def save(self):
        """Write it so that the file is the old one or the new one, never half; nothing recorded, no file."""
        folder = os.path.dirname(self.path)
        if not self.entries:
            if os.path.exists(self.path):
                os.unlink(self.path)
                if not os.listdir(folder):
                    os.rmdir(folder)
            return
        os.makedirs(folder, mode=0o755, exist_ok=True)
        new = self.path + ".new"
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump({"version": 1, "before": self.entries}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.rename(new, self.path)
        descriptor = os.open(folder, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def alone(folder):
    """Wait until no other call is at it: one that was broken off may go on. The lock ends with us."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX)


class Settings:
    """The wanted settings of one call against those of the host."""

    def __init__(self, wanted, record):
        self.wanted = {
            (each["kind"], each["name"]): KINDS[each["kind"]](each["name"], each["value"]) for each in wanted
        }
        self.record = record
        self.refused, self.notes, self.diff = [], [], []
        self.restored, self.set = [], []

    def refuse(self):
        """Raise Refused where the host cannot have a value, before anything is changed."""
        said = [text for text in (kind.refusal() for kind in self.wanted.values()) if text]
        if said:
            raise Refused("; ".join(said))

    def restore(self, check):
        """Bring back what is recorded and not wanted, the newest first."""
        for entry in reversed(list(self.record.entries)):
            if (entry["kind"], entry["name"]) in self.wanted:
                continue
            kind = KINDS[entry["kind"]](entry["name"])
            before = entry["before"]
            self.tell(self.restored, entry["kind"], entry["name"], kind.read(), before)
            if not check and self.tried(kind.restore, before):
                self.record.drop(entry)

    def apply(self, check):
        """Record what was before of all that differs, then set it."""
        new = []
        for key, kind in self.wanted.items():
            state = kind.read()
            if not kind.matches(state) and not self.record.holds(*key):
                new.append({"kind": key[0], "name": key[1], "before": kind.record(state)})
        if new and not check:
            self.record.entries += new
            self.record.save()
        for key, kind in self.wanted.items():
            state = kind.read()
            if kind.matches(state):
                continue
            self.tell(self.set, *key, state, kind.value)
            if not check:
                self.write(key, kind, state, new)

    def write(self, key, kind, state, new):
        """Set one; where that fails and left all as it was, there is nothing to bring back.

        What the kernel refused is not left in a file for the next boot.
        """
        waits = key[0] == "file" and self.refused
        if (not waits and self.tried(kind.write)) or kind.read() != state:
            return
        del self.diff[-1], self.set[-1]
        for entry in [each for each in new if (each["kind"], each["name"]) == key]:
            self.record.drop(entry)

    def tried(self, change, *arguments):
        try:
            change(*arguments)
        except Refused as refused:
            self.refused.append(str(refused))
        except Later as later:
            self.notes.append(str(later))
        except OSError as error:
            self.refused.append(f"{error.filename}: {error.strerror}")
        else:
            return True
        return False

    def tell(self, where, kind, name, before, after):
        header = f"{kind} {name}"
        where.append(header)
        sides = (self.side(before), self.side(after))
        self.diff.append(
            {"before_header": header, "after_header": header, "before": sides[0], "after": sides[1]}
        )

    @staticmethod
    def side(state):
        """Return a state as text for people; of a package what else there was does not matter."""
        if isinstance(state, dict) and "packages" in state:
            state = state["installed"]
        if isinstance(state, dict) and "content" in state:
            state = state["content"]
        if state is None or (isinstance(state, dict) and "missing" in state):
            return ""
        text = state if isinstance(state, str) else json.dumps(state, sort_keys=True)
        return text[:LONGEST].rstrip("\n") + "\n"


def main():
    module = AnsibleModule(
        argument_spec={
            "wanted": {"type": "list", "elements": "dict", "required": True},
            "record": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    try:
        alone(os.path.dirname(os.path.dirname(module.params["record"])))
        settings = Settings(module.params["wanted"], Record(module.params["record"]))
        if not module.check_mode:
            settled()
        settings.refuse()
        settings.restore(module.check_mode)
        settings.apply(module.check_mode)
    except (Refused, OSError) as error:
        module.fail_json(msg=str(error))
    result = {
        "changed": bool(settings.restored or settings.set),
        "restored": settings.restored,
        "set": settings.set,
        "notes": settings.notes,
        "diff": settings.diff,
    }
    if settings.refused:
        module.fail_json(msg="; ".join(dict.fromkeys(settings.refused)), **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
