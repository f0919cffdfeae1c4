"""Of several hosts, those that are unlike most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping


def unlike(values: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield host, its value and the usual one, for each host that has another value than most.

    ``values`` is by host, in the order of the inventory; "" is not known, and left out. Where as many have
    the one as the other, that of the first host is the usual one.
    """
    known = {host: value for host, value in values.items() if value}
    if not known:
        return
    usual = Counter(known.values()).most_common(1)[0][0]  # of equal counts, the one met first
    for host, value in known.items():
        if value != usual:
            yield host, value, usual
