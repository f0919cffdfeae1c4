"""Which records of a run its rule does not work on, and why: what is not used is counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from runner.model import Record
from runner.rates import parse_rule, select


def not_used(
    rule_text: str, records: Sequence[Record], scope: str, values: Sequence[float]
) -> Mapping[str, int]:
    """Count the records that ``rule_text`` leaves out, by reason; ``values`` are their rates for all cards.

    ``no_rate``: the line states none. ``scale_unknown``: it is not known how many cards or hosts it is for.
    ``own_figure``: the rule takes the log's own final figure. ``warm_up``: dropped at the beginning.
    ``before_tail``: before the last that count. ``trimmed``: the least and the greatest.
    """
    rule = parse_rule(rule_text)
    stated = [one for one in records if (one.step_s if scope == "seconds_per_step" else one.rate is not None)]
    counts = {"no_rate": len(records) - len(stated), "scale_unknown": len(stated) - len(values)}
    used = len(select(rule, values))
    if rule.kind == "summary":
        counts["own_figure"] = len(values)
    elif rule.tail is not None:
        counts["before_tail"] = len(values) - used
    else:
        counts["warm_up"] = min(rule.skip, len(values))
        counts["trimmed"] = len(values) - counts["warm_up"] - used
    return {reason: number for reason, number in counts.items() if number}
