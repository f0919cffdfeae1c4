"""MPI on the hosts: whether the launcher is there, starts, and is the same everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from runner.diagnosis import loose
from runner.diagnosis.model import Finding, HostView, Rule
from runner.diagnosis.rules_net import of_ranks
from runner.diagnosis.unlike import unlike

TMP_FULL = 10 << 20  # bytes free; a launcher and a few ranks take some MiB before they say anything
_VERSION = re.compile(r"\(Open MPI\) (\d+\.\d+)\S*")

RULES = (
    Rule(
        "mpi_missing",
        "blocking",
        "The MPI launcher is not there",
        "Open MPI is not installed, or cluster_mpirun names a place where it is not",
        "run provision, which installs Open MPI, or state its place as cluster_mpirun",
    ),
    Rule(
        "mpi_not_on_path",
        "blocking",
        "MPI is installed, and not on the PATH of a command that ssh starts",
        "it was put on the PATH by a login script or a module, which such a command does not read",
        "state its full path as cluster_mpirun, the same on all hosts",
    ),
    Rule(
        "mpi_daemon_not_on_path",
        "blocking",
        "The launch host finds no daemon of MPI on the host",
        "a launcher called without its full path starts orted by its bare name, and a command that ssh starts"
        " does not find it, or it is not installed there",
        "run provision, which installs it; where it lies elsewhere, state the full path of mpirun as"
        " cluster_mpirun: it tells the other hosts where its daemon is",
    ),
    Rule(
        "mpi_broken",
        "blocking",
        "The MPI launcher does not start",
        "a library of it is missing or of another version, or it was installed in part",
        "run it with --version on the host; install Open MPI anew with its libraries (on Debian: apt-get"
        " install --reinstall openmpi-bin libopenmpi3, libopenmpi40 from 13 on), or remove the one first on"
        " the PATH",
    ),
    Rule(
        "mpi_not_open_mpi",
        "blocking",
        "The MPI launcher is not Open MPI's",
        "MPICH, Intel MPI or another one is first on the PATH; its options are others",
        "state Open MPI's as cluster_mpirun, /usr/bin/mpirun where a package brought it, or take the other"
        " off the PATH; where there is none, run provision then",
    ),
    Rule(
        "mpi_version_differs",
        "blocking",
        "Open MPI is of another release than on the other hosts",
        "hosts have different distributions or an installation by hand; ranks of two releases cannot talk",
        "install the same release on all hosts, and state one place as cluster_mpirun",
    ),
    Rule(
        "mpi_path_differs",
        "warning",
        "The MPI launcher lies elsewhere than on the other hosts",
        "it was installed in different ways; a launcher called by its full path looks for its daemon there",
        "install it in the same place on all hosts",
    ),
    Rule(
        "mpi_addresses_several",
        "blocking",
        "The interface of the ranks has several addresses, and Open MPI is older than 5",
        "a service address that moves between hosts, or one left from before; such an Open MPI tells the"
        " ranks of one address, drops connections that come from another, and they wait for ever",
        "take away the address that is not the inventory's: ip address del ADDRESS/LENGTH dev INTERFACE; or"
        " give it an interface of its own, outside cluster_cidr",
    ),
    Rule(
        "python_packages_missing",
        "blocking",
        "The ranks' Python does not load numpy and mpi4py",
        "they are not installed for the Python that cluster_python names, do not fit its MPI, or miss its"
        " libraries",
        "run provision, which installs them, or state a Python that has them as cluster_python; a library of"
        " MPI that is missing comes back with its package",
    ),
    Rule(
        "mpi_tmp_full",
        "blocking",
        "There is no space in /tmp for the session of MPI",
        "less than 10 MiB is free, and no rank starts without a session there",
        "remove old files from /tmp, or make it larger",
    ),
    Rule(
        "python_packages_of_user",
        "blocking",
        "A broken package in the user's own folder hides that of the system",
        "pip install --user put it there; Python takes it first, be it for another Python or broken off",
        "remove the folder that the evidence names, or run pip uninstall as that user; provision does not",
    ),
    Rule(
        "mpi_tmp_not_writable",
        "blocking",
        "The user may not write to /tmp",
        "its mode was changed, or it is mounted read-only; no launcher starts without a session there",
        "as root: chmod 1777 /tmp; where it is mounted read-only: mount -o remount,rw /tmp",
    ),
    Rule(
        "mpi_hangs",
        "warning",
        "The MPI launcher does not say its version in time",
        "a wrapper around it or a file server that it lies on hangs, or the host is busy",
        "run it with --version on the host; where it hangs, take what is first on the PATH away",
    ),
    Rule(
        "mpi_of_host_unfit",
        "info",
        "The MPI of the host is missing or unlike that of others, and images bring their own",
        "the inventory says mpi_inside_image: only launchers mpirun and container_nodes would need it",
        "leave it so, or mend it and take mpi_inside_image out for workloads that use the hosts' MPI",
    ),
)


def check(hosts: Sequence[HostView]) -> Iterator[Finding]:
    """Yield what is wrong with MPI; no hindrance where every workload brings its own."""
    inside = {host.name for host in hosts if host.stated.mpi_inside_image}
    for finding in _check(hosts):
        yield replace(finding, code="mpi_of_host_unfit") if finding.host in inside else finding


def _check(hosts: Sequence[HostView]) -> Iterator[Finding]:
    told = {host.name: loose.mapping(host.data("mpi")) for host in hosts}
    for name, mpi in told.items():
        if mpi:
            yield from _launcher(name, mpi)
    for name, version, usual in unlike({name: _release(mpi) for name, mpi in told.items()}):
        shown = f"{loose.text(told[name], 'path')}: {_says(told[name])}"
        detail = f"Open MPI {version}, elsewhere it is {usual}"
        yield Finding("mpi_version_differs", name, shown, detail)
    for name, path, usual in unlike({name: loose.text(mpi, "path") for name, mpi in told.items()}):
        yield Finding("mpi_path_differs", name, path, f"elsewhere it is {usual}")
    for host in hosts:
        yield from _daemons(host, told)
        if len(hosts) > 1 and _release(told[host.name]).startswith(("3.", "4.")):
            yield from _addresses(host)
        yield from _packages(host)
        yield from _session(host)


def _launcher(name: str, mpi: Mapping[str, Any]) -> Iterator[Finding]:
    stated, path, said = loose.text(mpi, "stated"), loose.text(mpi, "path"), _says(mpi)
    others = [place for place, _ in loose.items(mpi.get("versions"))]
    if not path:
        bare = "/" not in stated
        code = "mpi_not_on_path" if others and bare else "mpi_missing"
        there = f"; there is {', '.join(others)}" if others else ""
        yield Finding(code, name, f"{stated}: not found{there}", f"{stated} is not there{there}")
    elif _status(mpi) not in (0, None):
        yield Finding("mpi_broken", name, f"{path} --version: {said}", f"{path} does not start")
    elif _own(mpi).get("status", "") is None:
        yield Finding("mpi_hangs", name, f"{path} --version: no answer", f"{path} did not answer in time")
    elif said and "Open MPI" not in said:
        yield Finding("mpi_not_open_mpi", name, f"{path} --version: {said}", f"{path} is another MPI")


def _daemons(launch: HostView, told: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Release 4 called by its bare name needs its daemon on the PATH of the others; 5 says where it is."""
    mpi = told[launch.name]
    if "/" in loose.text(mpi, "stated") or not _release(mpi).startswith(("3.", "4.")):
        return
    for name, said in loose.items(launch.data("ssh")):
        found = [line for line in loose.text(said, "out").splitlines() if line.startswith("/")]
        has_mpi = name in told and loose.text(told[name], "path")  # else that is told
        if has_mpi and said.get("status") == 0 and not any(line.endswith("/orted") for line in found):
            shown = f"ssh {name} command -v orted: {', '.join(found) or 'nothing'}"
            yield Finding(
                "mpi_daemon_not_on_path", name, shown, f"{launch.name} starts orted by its bare name"
            )


def _addresses(host: HostView) -> Iterator[Finding]:
    """Seen with 4.1.4, be they in one network or two; 5.0.7 meets over such an interface."""
    for each in of_ranks(host):
        if len(each.addresses) > 1:
            shown = f"{each.name} {' '.join(each.addresses)}"
            yield Finding("mpi_addresses_several", host.name, shown, f"{each.name} has {len(each.addresses)}")


def _packages(host: HostView) -> Iterator[Finding]:
    """What the ranks' Python said when it was to load what ranks load."""
    probe = host.probes.get("python_packages")
    if probe is None or probe.status == 0 or (probe.status is None and probe.why != "missing"):
        return
    python = [*probe.argv, ""][0]
    ended = "not found" if probe.why else f"it ended with status {probe.status}"
    said = [ended, *filter(str.strip, probe.err.splitlines())][-1]
    for line in probe.out.splitlines():
        package, _, origin = line.partition(" ")
        folder = origin.rpartition("/")[0]
        if "/.local/lib/python" in folder and f'File "{folder}/' in probe.err:
            detail = f"{package} of the user is broken"
            yield Finding("python_packages_of_user", host.name, f"{folder}: {said}", detail)
            return
    yield Finding("python_packages_missing", host.name, f"{python}: {said}", "ranks would not start")


def _session(host: HostView) -> Iterator[Finding]:
    """The folder that the launcher writes to before it starts anything."""
    tmp = loose.mapping(loose.mapping(host.data("space")).get("tmp"))
    if tmp.get("writable") is False:
        path = loose.text(tmp, "path")
        shown = f"{path}: not writable for the user"
        yield Finding("mpi_tmp_not_writable", host.name, shown, f"no file can be made in {path}")
    free = loose.number(tmp, "free")
    if free is not None and free < TMP_FULL:
        shown = f"{loose.text(tmp, 'path')}: {free:.0f} bytes free"
        yield Finding("mpi_tmp_full", host.name, shown, "mpirun finds no space")


def _own(mpi: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the launcher that is used said."""
    return loose.mapping(loose.mapping(mpi.get("versions")).get(loose.text(mpi, "path")))


def _status(mpi: Mapping[str, Any]) -> float | None:
    return loose.number(_own(mpi), "status")


def _says(mpi: Mapping[str, Any]) -> str:
    """Its first line."""
    return (loose.text(_own(mpi), "says").splitlines() or [""])[0]


def _release(mpi: Mapping[str, Any]) -> str:
    """As in "4.1", "" where it is not known."""
    found = _VERSION.search(_says(mpi))
    return found[1] if found else ""
