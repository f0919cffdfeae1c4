"""Say whether a port of the fabric is up: ``ports.py TREE FABRIC SECONDS``, FABRIC is infiniband or roce.

Waits SECONDS at most for a subnet manager, where a port needs one. Prints a JSON object: ``ports``, how many
there are; ``wrong``, a sentence where none of them is active and of the layer that the fabric has, else "".
Python 3.8 or later, standard library only.
"""

import glob
import json
import os
import sys
import time

LAYER = {"infiniband": "InfiniBand", "roce": "Ethernet"}
WORDS = ("state", "phys_state", "link_layer")


def read(path):
    """Return what stands behind the number in a file such as ``4: ACTIVE``; "" where it cannot be read."""
    try:
        with open(path) as file:
            return file.readline().strip().split(": ")[-1]
    except OSError:
        return ""


def why(port, fabric):
    """Return what keeps a port down, and the remedy."""
    if port["state"] == "INIT":
        return "no subnet manager has set the link up; start a switch's, or say rdma_subnet_manager: true"
    if port["phys_state"] == "Polling":
        return "nothing answers at the other end; check cable and switch port"
    if port["phys_state"] == "Disabled":
        return "it is switched off; enable it with ibportstate or ip link, and check the switch port"
    if fabric == "roce":
        return "bring its network interface up, and check cable and switch port"
    return "check cable, switch port and subnet manager"


def verdict(ports, fabric):
    """Return the sentence that refuses these ports, "" where one of them will do."""
    layer = LAYER[fabric]
    active = {name: port for name, port in ports.items() if port["state"] == "ACTIVE"}
    if any(port["link_layer"] == layer for port in active.values()):
        return ""
    if active:
        name, port = sorted(active.items())[0]
        return (
            "cluster_fabric says {}, and no active port has link layer {}: {} has {}; correct "
            "cluster_fabric, or set LINK_TYPE of the ports with mstconfig and reboot"
        ).format(fabric, layer, name, port["link_layer"])
    # The one that is nearest to being up explains most.
    name, port = min(ports.items(), key=lambda each: (each[1]["state"] != "INIT", each[0]))
    said = "no RDMA port is active: {} is {}, {}: {}"
    return said.format(name, port["state"], port["phys_state"], why(port, fabric))


def look(tree):
    """Return every port, by device and number; a tree that is not there has none."""
    ports = {}
    for folder in glob.glob(os.path.join(tree, "*", "ports", "*")):
        device, number = folder.split(os.sep)[-3], folder.split(os.sep)[-1]
        ports[device + "/" + number] = {word: read(os.path.join(folder, word)) for word in WORDS}
    return ports


def main(tree, fabric, seconds):
    """Look until one will do, none waits, or the time is over."""
    end = time.monotonic() + float(seconds)
    while True:
        ports = look(tree)
        wrong = verdict(ports, fabric) if ports else ""
        waits = bool(wrong) and any(port["state"] == "INIT" for port in ports.values())
        if not waits or time.monotonic() >= end:
            break
        time.sleep(min(1.0, max(0.05, end - time.monotonic())))
    print(json.dumps({"ports": len(ports), "wrong": wrong}))


if __name__ == "__main__":
    main(*sys.argv[1:])
