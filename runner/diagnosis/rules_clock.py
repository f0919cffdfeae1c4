"""The clocks of the hosts: whether they agree, and whether something keeps them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from runner.diagnosis import loose
from runner.diagnosis.model import Finding, HostView, Rule

APART_S = 0.5  # logs of several hosts are read side by side, and show steps of less
Bounds = tuple[float, float]  # seconds that a clock is ahead of another, at least and at most

RULES = (
    Rule(
        "clock_differs",
        "warning",
        "The clock is not that of the other hosts",
        "no time service keeps it, or the service has no source; so logs of the hosts cannot be read side by"
        " side, and certificates and file times seem wrong",
        "run provision, which installs chrony; then step the clock once with chronyc makestep",
    ),
    Rule(
        "time_service_off",
        "warning",
        "No time service runs",
        "chrony, systemd-timesyncd or ntpd is not installed or was stopped, so clocks drift apart",
        "run provision, which installs and starts chrony",
    ),
    Rule(
        "clock_unsynchronized",
        "warning",
        "The clock is not synchronized",
        "the time service runs, and has reached no source of time",
        "see 'chronyc sources' or 'timedatectl timesync-status'; name one that the host can reach, as "
        "'server NAME iburst', in chrony's own file, /etc/chrony/chrony.conf or on Enterprise Linux "
        "/etc/chrony.conf, and restart chrony",
    ),
)


def check(hosts: Sequence[HostView]) -> Iterator[Finding]:
    """Yield clocks that are off, and those that nothing keeps."""
    for host in hosts:
        yield from _time_service(host)
    yield from _apart(hosts)


def _time_service(host: HostView) -> Iterator[Finding]:
    """Of a host with a clock of its own: that of a container is its machine's."""
    units = host.probe("time_units").out.split()
    if not units or host.text("container").strip():
        return
    if "active" not in units:
        shown = f"{' '.join(host.probe('time_units').argv)}: {', '.join(units)}"
        yield Finding("time_service_off", host.name, shown, "no time service is active")
    elif "NTPSynchronized=no" in host.text("time_state").splitlines():
        yield Finding(
            "clock_unsynchronized", host.name, "NTPSynchronized=no", "no source of time was reached"
        )


def _apart(hosts: Sequence[HostView]) -> Iterator[Finding]:
    """Hosts whose clock is certainly off, measured against the host that most agree with.

    Between two hosts by the time that one told the other: the error is half of that round trip. Where they
    did not talk, by when each was asked and answered here: then it is half of the login and the looks.
    """
    bounds = {(one.name, two.name): _ahead(one, two) for one in hosts for two in hosts}
    off = {pair: min(max(low, 0.0), high) for pair, (low, high) in bounds.items()}  # 0 where it may be none
    if not hosts:
        return
    names = [host.name for host in hosts]
    first = min(names, key=lambda name: sum(abs(off[name, other]) > APART_S for other in names))
    for name in names:
        if abs(off[first, name]) > APART_S:
            low, high = bounds[first, name]
            middle, error = (low + high) / 2, (high - low) / 2
            side = "ahead of" if middle > 0 else "behind"
            shown = f"{abs(middle):.3f} s {side} {first}, give or take {error:.2g} s"
            yield Finding(
                "clock_differs", name, shown, f"its clock is {abs(middle):.1f} s off that of {first}"
            )


def _ahead(one: HostView, two: HostView) -> Bounds:
    """How far the clock of ``two`` is ahead of that of ``one``; endless bounds where nothing is known."""
    if one is two:
        return 0.0, 0.0
    low, high = _told(two, one)
    (low_one, high_one), (low_two, high_two) = _asked(one), _asked(two)
    found = [_told(one, two), (-high, -low), (low_two - high_one, high_two - low_one)]
    return min(found, key=lambda bounds: bounds[1] - bounds[0])


def _told(one: HostView, two: HostView) -> Bounds:
    """By the time that ``two`` told ``one`` over a connection; the best of its ports."""
    found = [(float("-inf"), float("inf"))]
    for _, said in loose.items(_reached(one).get(two.name)):
        offset, error = loose.number(said, "offset"), loose.number(said, "error")
        if offset is not None and error is not None and error >= 0:
            found.append((offset - error, offset + error))
    return min(found, key=lambda bounds: bounds[1] - bounds[0])


def _reached(host: HostView) -> Mapping[str, object]:
    return loose.mapping(loose.mapping(host.data("pairs")).get("reached"))


def _asked(host: HostView) -> Bounds:
    """By the clock of the machine that asked."""
    data = loose.mapping(host.data("clock_offset"))
    least, most = loose.number(data, "least_s"), loose.number(data, "most_s")
    return (float("-inf"), float("inf")) if least is None or most is None else (least, most)
