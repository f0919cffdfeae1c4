"""Cut what a grammar found in a log into runs: one rank's lines, parted at banners and steps back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from runner.model import Record
from runner.parsers._engine import Hit
from runner.parsers._values import number, precision

COUNTS = ("cards", "hosts", "batch_size", "global_batch")
_OUTCOMES = ("accuracy", "time_to_train_s", "time_to_target_s")


class Segment:
    """The lines of one run, gathered. Of a run's parameters the first word holds, of its outcome the last."""

    def __init__(self) -> None:
        self.parameters: dict[str, str] = {}
        self.outcomes: dict[str, str] = {}
        self.summary: dict[str, float] = {}
        self.of_hosts: Sequence[Mapping[str, float]] = ()  # the same of every host that wrote one
        self.facts: dict[str, str] = {}
        self.hosts: set[str] = set()  # by name, where the log lists all that took part
        self.records: list[Record] = []
        self.bad: list[Hit] = []
        self.nan_losses: list[Hit] = []
        self.not_used: Counter[str] = Counter()  # lines that look like records and give none, by reason
        self.banner: Mapping[str, str] | None = None
        self.last_line = 0
        self.complete = False
        self.summed_up = False
        self.settings: frozenset[str] = frozenset()  # the facts known before anything was measured
        self.again: dict[str, str] = {}  # said again since the last result: perhaps the head of the next run
        self.again_line = 0
        self.before: Mapping[str, str] = {}  # what may be this run's head, see again

    @property
    def has_results(self) -> bool:
        """Whether anything was measured."""
        return bool(self.records or self.summed_up or self.bad)

    @property
    def precision(self) -> str | None:
        """The precision as the lines of the run say it."""
        if "precision" in self.parameters:
            return precision(self.parameters["precision"])
        return {"True": "amp", "False": "fp32"}.get(self.parameters.get("amp", ""))

    def is_left_by(self, hit: Hit) -> bool:
        """Whether ``hit`` begins another run: another banner, or a step back to where this run began.

        Ranks may repeat a banner; a step may repeat, and may go back part of the way after a restart.
        """
        if hit.kind == "start":
            return self.has_results or self.banner not in (None, hit.values)
        if hit.record is None or not self.records:
            return False
        if hit.record.step is None:
            return self.complete
        step, first, last = _position(hit.record), _position(self.records[0]), _position(self.records[-1])
        return step <= first < last or (self.complete and step <= last)

    def take(self, hit: Hit) -> None:
        """Add a line of this run."""
        if self.has_results and _may_be_next(hit):
            self.hear(hit.values, hit.line.number, hit.row is not None and hit.row.behind is False)
            return
        self.settle()
        if not self.has_results:
            self.settings = frozenset(self.facts)
        self.last_line = hit.line.number
        self.summed_up = self.summed_up or hit.kind == "summary"
        if hit.nan_loss:
            self.nan_losses.append(hit)
        if hit.record is None:
            self.not_used.update(_no_record(hit))
        if hit.record is not None:
            self.records.append(hit.record)
        elif hit.bad:
            self.bad.append(hit)
        elif hit.kind == "start":
            self.banner = hit.values
        self.complete = self.complete or hit.is_end
        self.learn(hit.values)

    def hear(self, values: Mapping[str, str], line: int, ahead: bool = False) -> None:
        """Add what a note says; behind a result, what is said again waits, as does what stands ``ahead``."""
        waits = {key for key in values if self.has_results and (ahead or self._knows(key))}
        again = {key: text for key, text in values.items() if key in waits}
        for key, text in again.items():
            self.again[key] = text if key.startswith("facts.") else self.again.get(key, text)
        if again:
            self.again_line = line
        else:
            self.last_line = line
        self.learn({key: text for key, text in values.items() if key not in again})

    def _knows(self, key: str) -> bool:
        return key in self.parameters or (key.startswith("facts.") and key[6:] in self.settings)

    def settle(self) -> None:
        """Keep what was said again: no other run came."""
        self.learn(self.again)
        self.last_line = max(self.last_line, self.again_line)
        self.again = {}

    def inherit(self) -> None:
        """Add what was said before the run began, where its own lines say nothing of it."""
        said = {"precision", "amp"} & self.parameters.keys()
        for key, text in self.before.items():
            if key.startswith("facts."):
                self.facts.setdefault(key[6:], text)
            elif not (said and key in ("precision", "amp")):
                self.parameters.setdefault(key, text)

    def learn(self, values: Mapping[str, str]) -> None:
        """Add what a line says of the run as a whole."""
        for key, text in values.items():
            kind, _, name = key.rpartition(".")
            if kind == "facts":
                self.facts[name] = text
            elif kind == "summary":
                value = number(text)
                if value is not None:
                    self.summary[name] = value
            elif key == "host":
                self.hosts.add(text)
            elif key in _OUTCOMES:
                self.outcomes[key] = text
            else:
                self.parameters.setdefault(key, text)


def segments(hits: Sequence[Hit], rank: int | None) -> list[Segment]:
    """Part the lines of ``rank`` into runs, in order; runs without any result are left out."""
    made = [Segment()]
    untagged = stands_alone(hits, rank)
    for hit in hits:
        if not _belongs(hit, rank, untagged):
            if hit.kind in ("start", "note"):  # other ranks know as well how many they are
                counts = {key: hit.values[key] for key in COUNTS if key in hit.values}
                made[-1].hear(counts, made[-1].last_line)
            elif hit.kind in ("record", "near"):
                made[-1].not_used["other_rank"] += 1
            continue
        if made[-1].is_left_by(hit):
            made = [*made, _next(made[-1])] if made[-1].has_results else [*made[:-1], _anew(made[-1])]
        made[-1].take(hit)
    made[-1].settle()
    for segment in made:
        segment.inherit()
    if len(made) > 1 and not made[-1].has_results:
        made[-2].not_used += made.pop().not_used
    return made if made[-1].has_results else []


def chosen_rank(hits: Sequence[Hit]) -> int | None:
    """Choose the lowest rank that wrote records, else final figures; None where no line has a rank."""
    for kind in ("record", "summary"):
        ranks = [hit.line.rank for hit in hits if hit.kind == kind]
        if ranks:
            return min((rank for rank in ranks if rank is not None), default=None)
    return None


def stands_alone(hits: Sequence[Hit], rank: int | None) -> bool:
    """Whether the records without a rank are of runs of their own, before or behind those of ``rank``."""
    before: Hit | None = None
    begun = False
    for hit in hits:
        if hit.line.rank not in (None, rank):
            continue
        if hit.record is not None:
            changed = before is not None and before.line.rank != hit.line.rank
            back = before is not None and before.record is not None and _goes_back(before.record, hit.record)
            if changed and not begun and not back:
                return False
            before, begun = hit, False
        begun = begun or hit.kind == "start"
    return True


def _goes_back(before: Record, record: Record) -> bool:
    return record.step is not None and _position(record) < _position(before)


def _belongs(hit: Hit, rank: int | None, untagged: bool) -> bool:
    """Whether a line is the chosen rank's, or one that the launcher wrote for all (no rank, no record)."""
    if hit.line.rank == rank:
        return True
    return hit.line.rank is None and (untagged or hit.kind in ("start", "summary", "note"))


def _may_be_next(hit: Hit) -> bool:
    """Whether a line behind a run's results may speak of the run that follows."""
    return hit.row is not None and hit.kind == "note" and not hit.is_end and not hit.row.behind


def _next(before: Segment) -> Segment:
    """Begin the next run with what was said again since the last result: it is the head of this one."""
    segment = Segment()
    segment.before, before.again = before.again, {}
    return segment


def _anew(without_results: Segment) -> Segment:
    """Begin again; what other ranks wrote meanwhile stays counted."""
    segment = Segment()
    segment.not_used = without_results.not_used
    return segment


def _no_record(hit: Hit) -> Sequence[str]:
    """Why a line that looks like a record is none; nothing for a final figure."""
    return {"near": ["near_miss"], "record": ["no_figure"]}.get(hit.kind, [])


def _position(record: Record) -> tuple[int, int]:
    return record.epoch or 0, record.step or 0
