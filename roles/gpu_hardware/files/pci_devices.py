"""List the devices of some vendors on the PCI bus: ``pci_devices.py TREE VENDOR...``, vendors as four digits.

Prints a JSON list of ``address``, ``vendor``, ``id`` and ``class`` (base class and subclass), hexadecimal in
small letters and without prefix, in the order of addresses. Python 3.8 or later, standard library only.
"""

import json
import os
import sys


def read(folder, name, digits):
    """Return the first hex digits of a file such as ``0x030200``, or "" where there is none."""
    try:
        with open(os.path.join(folder, name)) as file:
            return file.read(32).strip().lower()[2 : 2 + digits]
    except OSError:
        return ""


def main(tree, *vendors):
    """Look at every device; a tree that is not there is an empty one."""
    try:
        addresses = sorted(os.listdir(tree))
    except OSError:
        addresses = []
    found = []
    for address in addresses:
        folder = os.path.join(tree, address)
        vendor = read(folder, "vendor", 4)
        if vendor in vendors:
            each = {"address": address, "vendor": vendor, "id": read(folder, "device", 4)}
            found.append({**each, "class": read(folder, "class", 4)})
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
