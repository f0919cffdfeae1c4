"""Role host_names: what of /etc/hosts is taken out, by Ansible's own module."""

from __future__ import annotations

from pathlib import Path

import yaml
from kit import ROOT
from plays import play

ROLE = ROOT / "roles" / "host_names"
BEFORE = b"""\
127.0.0.1 localhost
127.0.1.1 gpu2
10.9.9.9 fileserver
127.0.1.1 node-17.site node-17

# of the site, do not touch
10.9.9.8 license-server
127.0.1.1\tgpu3.site\tgpu3   # as the installer wrote it
127.0.1.1 gpu2 node-18 old
127.0.1.1 GPU3 gpu2 # both
127.0.1.1 gpu22 my-gpu2 gpu2.site # was gpu2
127.0.0.1 gpu2 localhost
# BEGIN runkit: the hosts of the cluster
192.168.10.12 gpu2
# END runkit: the hosts of the cluster
# caf\xe9
127.0.1.1 gpu2"""
AFTER = b"""\
127.0.0.1 localhost
10.9.9.9 fileserver
127.0.1.1 node-17.site node-17

# of the site, do not touch
10.9.9.8 license-server
127.0.1.1\tgpu3.site   # as the installer wrote it
127.0.1.1 node-18 old
127.0.1.1 gpu22 my-gpu2 gpu2.site # was gpu2
127.0.0.1 gpu2 localhost
# BEGIN runkit: the hosts of the cluster
192.168.10.12 gpu2
# END runkit: the hosts of the cluster
# caf\xe9
"""


def test_names_of_the_cluster_alone_are_taken_from_loopback(tmp_path: Path) -> None:
    (task,) = (
        each
        for each in yaml.safe_load((ROLE / "tasks" / "main.yml").read_text())
        if "ansible.builtin.replace" in each
    )
    hosts = tmp_path / "hosts"
    hosts.write_bytes(BEFORE)
    task["ansible.builtin.replace"]["path"] = str(hosts)
    known = {"ansible.builtin.include_vars": str(ROLE / "vars" / "main.yml")}
    cluster = {"gpu2": "192.168.10.12", "gpu3": "192.168.10.13"}
    for changed in (1, 0):
        told = play(tmp_path, [known, task], host_names_addresses=cluster)
        assert f"changed={changed}" in told
        assert hosts.read_bytes() == AFTER
