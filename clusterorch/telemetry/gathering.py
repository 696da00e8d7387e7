"""Here lives what only the last file settles: years, names of hosts, relations between lines."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from copy import copy
from dataclasses import replace

from clusterorch.telemetry.aliases import settle
from clusterorch.telemetry.copies import undersized
from clusterorch.telemetry.dumps import Dump
from clusterorch.telemetry.jumps import jump_at_load
from clusterorch.telemetry.operators import related
from clusterorch.telemetry.patterns import Formats
from clusterorch.telemetry.readings import EntityRef, Finding, Ingested, Reading, Sample
from clusterorch.telemetry.rows import Operator
from clusterorch.telemetry.spans import goes_on, stays, taken_back, unfinished
from clusterorch.telemetry.spreads import far_apart
from clusterorch.telemetry.stacks import Stacks, minority
from clusterorch.telemetry.starts import Start, told_beside_starts
from clusterorch.telemetry.timestamps import NO_YEAR, in_year, year_of

MOST_OF_A_PATTERN = 100_000
MOST_READINGS = 500_000
MOST_FRAMES = 1_000_000  # of stacks, some 200 bytes each
_NAMED_LIKE_A_HOST = re.compile(r"(?:^|[-_./])(?P<host>[A-Za-z]{1,16}-?\d{1,6})(?:\.\w{1,8}){0,2}$")


class Gathering:
    """Collects what the files say; keeps every kind of line bounded, so that a flood drowns nothing else."""

    def __init__(self, formats: Formats) -> None:
        self.formats = formats
        self.result = Ingested()
        self.samples: list[Sample] = []
        self.complaints: list[Reading] = []
        self.dumps: list[Dump] = []
        self.stacks: list[tuple[str, Stacks]] = []
        self.starts: list[Start] = []
        self.order = 0
        self._frames = 0
        self._kept: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()

    def room(self, pattern: str) -> bool:
        """Whether another record of this pattern is kept."""
        total = len(self.result.readings) + len(self.samples) + len(self.result.phases)
        if self._kept[pattern] >= MOST_OF_A_PATTERN or total >= MOST_READINGS:
            self._dropped[pattern] += 1
            return False
        self._kept[pattern] += 1
        return True

    def keep_stacks(self, file: str, stacks: Stacks) -> None:
        """Keep the stacks of a file, unless those of others fill what there is room for."""
        frames = sum(len(thread.frames) + 1 for thread in stacks.threads)
        if self._frames + frames > MOST_FRAMES:
            self._dropped["thread"] += len(stacks.threads)
        elif frames:
            self._frames += frames
            self.stacks.append((file, stacks))

    def note(self, file: str, kind: str, text: str, line: int | None = None) -> None:
        """Add a finding about a file."""
        self.result.findings.append(Finding(file, line, kind, text))

    def snapshot(self) -> Gathering:
        """A copy that can be finished while this one takes in more."""
        twin, result = copy(self), self.result
        coverage = replace(
            result.coverage, streams=dict(result.coverage.streams), samples=list(result.coverage.samples)
        )
        twin.result = Ingested(
            list(result.readings),
            list(result.phases),
            list(result.limits),
            list(result.places),
            coverage,
            list(result.findings),
            [replace(summary) for summary in result.files],
            set(result.hosts),
        )
        twin.samples, twin.complaints = list(self.samples), list(self.complaints)
        twin.stacks, twin.dumps, twin.starts = list(self.stacks), list(self.dumps), list(self.starts)
        twin._kept, twin._dropped = Counter(self._kept), Counter(self._dropped)
        return twin

    def finish(self) -> Ingested:
        """Everything, relations included."""
        self._stacks()
        self._years()
        self._take_back()
        for operator in self.formats.operator.values():
            mine = [sample for sample in self.samples if sample.measure == operator.measure]
            self._add(related(operator, mine, self.result.phases, self.complaints, self.dumps, self._host_of))
            self._add(self._of_the_run(operator, mine))
            if operator.kind == "at_start":
                self.result.readings = told_beside_starts(operator, self.result.readings, self.starts)
        self._addresses()
        settle(self.result, self.formats)
        self.result.readings.sort(key=lambda reading: reading.order)
        for pattern, count in sorted(self._dropped.items()):
            self.note("", "too_many", f"{count} more lines of {pattern} were counted but not kept")
        return self.result

    def _take_back(self) -> None:
        for operator in self.formats.operator.values():
            if operator.kind != "takes_back":
                continue
            mine = [sample for sample in self.samples if sample.measure == operator.measure]
            gone = set(taken_back(operator, mine, self.result.readings))
            self.result.readings = [reading for reading in self.result.readings if reading not in gone]
            self.complaints = [reading for reading in self.complaints if reading not in gone]

    def _of_the_run(self, operator: Operator, mine: list[Sample]) -> list[Reading]:
        """What a run says about itself over many lines: its losses, its copies, its slowest member."""
        if operator.kind == "jump_at_load":
            positions = [sample for sample in self.samples if sample.measure == operator.position]
            return jump_at_load(operator, mine, positions, self.result.phases)
        if operator.kind == "undersized":
            return undersized(operator, mine)
        if operator.kind == "open_span":
            return unfinished(operator, mine)
        if operator.kind == "repeats":
            return stays(operator, self.result.readings)
        if operator.kind == "goes_on":
            return goes_on(operator, mine, self.result.readings)
        return far_apart(operator, mine) if operator.kind == "far_apart" else []

    def _add(self, readings: Iterable[Reading]) -> None:
        self.result.readings.extend(readings)

    def _stacks(self) -> None:
        for operator in self.formats.operator.values():
            if operator.kind != "minority":
                continue
            self._add(minority(operator, self.stacks, self._host_of))

    def _host_of(self, file: str) -> str | None:
        """The label in a file's name that is also a host, or is formed like one and tells files apart."""
        stem = file.rsplit("/", 1)[-1]
        for host in sorted(self.result.hosts, key=len, reverse=True):
            if re.search(rf"(?<![A-Za-z0-9]){re.escape(host)}(?![A-Za-z0-9])", stem):
                return host
        found = _NAMED_LIKE_A_HOST.search(stem)
        return found["host"] if found else None

    def _years(self) -> None:
        """Move wall times that came without a year next to those that came with one."""
        dated = sorted(
            reading.time for reading in self.result.readings if reading.clock == "wall" and _has_year(reading.time)
        )
        if not dated:
            return
        year, middle = year_of(dated[len(dated) // 2]), dated[len(dated) // 2]
        walled = {summary.file for summary in self.result.files if summary.clock == "wall"}

        def moved(record):
            changes = {}
            if getattr(record, "clock", "wall") == "wall" and record.time is not None and not _has_year(record.time):
                changes["time"] = _nearest(record.time, year, middle)
            after = getattr(record, "after", None)
            if after is not None and record.file in walled and not _has_year(after):
                changes["after"] = _nearest(after, year, middle)
            return record._replace(**changes) if changes else record

        result = self.result
        result.readings = [moved(reading) for reading in result.readings]
        result.phases = [moved(mark) for mark in result.phases]
        result.limits = [moved(mark) for mark in result.limits]
        self.complaints = [moved(reading) for reading in self.complaints]
        self.samples = [sample._replace(base=moved(sample.base)) for sample in self.samples]
        self.starts = [moved(start) for start in self.starts]
        for summary in result.files:
            if summary.clock == "wall" and summary.first is not None and not _has_year(summary.first):
                summary.first = _nearest(summary.first, year, middle)
                summary.last = _nearest(summary.last or 0.0, year, middle)

    def _addresses(self) -> None:
        """Call hosts by their names where the logs say which address is whose."""
        names: dict[str, set[str]] = defaultdict(set)
        for place in self.result.places:
            if place.address and place.host:
                names[place.address].add(place.host)
        sure = {address: next(iter(hosts)) for address, hosts in names.items() if len(hosts) == 1}
        if not sure:
            return

        def named(entity: EntityRef) -> EntityRef:
            return entity._replace(host=sure.get(entity.host or "", entity.host))

        self.result.readings = [
            reading._replace(entity=named(reading.entity)) if reading.entity.host in sure else reading
            for reading in self.result.readings
        ]


def _has_year(time: float | None) -> bool:
    return time is not None and year_of(time) > NO_YEAR + 1


def _nearest(time: float, year: int, middle: float) -> float:
    return min((in_year(time, candidate) for candidate in (year - 1, year, year + 1)), key=lambda t: abs(t - middle))
