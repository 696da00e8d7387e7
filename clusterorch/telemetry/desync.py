"""Here live the relations between the Flight Recorder dumps of a job: who is behind whom, and in what.

A rank is behind in three ways.  Its host never enqueued what its peers wait in (*behind*); its host enqueued it
but its device never came to it, or never finished what peers finished (*unstarted*); or it enqueued something
else than they did at the same place (*differs*).  A rank that merely waits for such a rank is not named.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from clusterorch.telemetry.dumps import Dump, Membership, Record
from clusterorch.telemetry.readings import EntityRef, Reading
from clusterorch.telemetry.rows import Operator

# Operations that no member can complete before every member has begun them.
_MUTUAL = ("all_reduce", "allreduce", "all_gather", "allgather", "reduce_scatter", "all_to_all", "alltoall", "barrier")
# Operations whose input has one size on all members.
_EVEN = ("all_reduce", "allreduce", "all_gather_base", "allgather_base", "reduce_scatter_base", "broadcast")
_FEWEST_OF_ALL = 4  # members of a group of which one may be missed
_FEWEST_BEHIND = 2  # completions that peers are ahead: one may be seen a moment later


class Said(NamedTuple):
    """What sets a rank apart, in words, and the number of the first collective where it shows."""

    rank: int
    sequence: int
    text: str


class _Group:
    """A process group as its members recorded it."""

    def __init__(self, name: str, members: dict[int, Membership]) -> None:
        self.members = members
        some = next(iter(members.values()))
        described = next((group.description for group in members.values() if group.description), "")
        self.label = f"{described or 'process group'} ({name})"
        self.ranks = some.members or tuple(sorted(members))
        self.pairwise = any(group.pairwise for group in members.values())
        self.enqueued = {rank: group.enqueued for rank, group in members.items() if group.enqueued is not None}

    def missed(self) -> dict[int, int]:
        """Each rank that did not enqueue what another member waits in, with the first such number."""
        if self.pairwise:
            return {}
        pending = sorted({sequence for own in self.members.values() for sequence in own.pending})
        # A rank's own records lie at or before its last, so what is pending after that is pending on others.
        after = {rank: bisect_right(pending, last) for rank, last in self.enqueued.items()}
        return {rank: pending[at] for rank, at in after.items() if at < len(pending)}


def jobs(dumps: Sequence[Dump]) -> list[dict[int, Dump]]:
    """The dumps of each job by rank: those of one folder; of two dumps of a rank, the one with more behind it."""
    folders: dict[str, dict[int, Dump]] = defaultdict(dict)
    for dump in dumps:
        if dump.rank is None:
            continue
        folder = folders[dump.file.rpartition("/")[0]]
        if dump.rank not in folder or _age(dump) > _age(folder[dump.rank]):
            folder[dump.rank] = dump
    return [folder for folder in folders.values() if len(folder) > 1]


def _age(dump: Dump) -> int:
    return sum(group.enqueued or 0 for group in dump.groups.values())


def _groups(job: dict[int, Dump]) -> list[_Group]:
    named: dict[str, dict[int, Membership]] = defaultdict(dict)
    for rank, dump in job.items():
        for name, group in dump.groups.items():
            named[name][rank] = group
    for members in named.values():
        _borrow_numbers(members, job)
    return [_Group(name, members) for name, members in named.items() if len(members) > 1]


def _borrow_numbers(members: dict[int, Membership], job: dict[int, Dump]) -> None:
    """Where a rank has no record of a group, its counters are found under the number that peers give the group.

    A dump of what is pending has no record on a rank that waits for nothing, and the counters carry only the
    number of the group on that rank.  Members create their groups in one order, so the number is the same.
    """
    numbers = {group.local_id for group in members.values() if group.local_id}
    if len(numbers) != 1:
        return
    number = next(iter(numbers))
    pairwise = any(group.pairwise for group in members.values())
    for rank, group in members.items():
        taken = {other.local_id for other in job[rank].groups.values()}
        if group.local_id is None and number not in taken and number in job[rank].status and not pairwise:
            group.enqueued, group.completed = job[rank].status[number]


def behind(job: dict[int, Dump]) -> list[Said]:
    """Ranks that never enqueued a collective in which their peers wait, unless they wait for such a rank."""
    groups = _groups(job)
    halted = {said.rank for said in unstarted(job)}
    waits = _waits(job, groups)
    found: dict[int, Said] = {}
    for group in groups:
        for rank, first in group.missed().items():
            found.setdefault(
                rank, Said(rank, first, f"never enqueued collective {first} of {group.label}; peers wait in it")
            )
    for said in _idle(job, groups):
        found.setdefault(said.rank, said)
    reached = {rank: _reached(waits, rank) for rank in {*found, *halted}}
    roots = [
        said
        for rank, said in found.items()
        if rank not in halted and all(rank in reached[other] for other in reached[rank] & reached.keys())
    ]
    # Half or more of a job is no minority: a snapshot of a job that runs looks like that.
    return _few(roots or _silent(job, groups, found), len(job))


def _waits(job: dict[int, Dump], groups: Iterable[_Group]) -> dict[int, set[int]]:
    """Whom each rank waits for: members that missed its collective; the partner where a receive is its last word."""
    waits: dict[int, set[int]] = defaultdict(set)
    for group in groups:
        missed = group.missed()
        for rank, own in group.members.items():
            waits[rank] |= {late for late, first in missed.items() if late != rank and first in own.pending}
    for rank, dump in job.items():
        if dump.last_partner is not None:
            waits[rank].add(dump.last_partner)
    return waits


def _reached(waits: dict[int, set[int]], start: int) -> set[int]:
    """Everybody for whom a rank waits, or those wait for whom it waits."""
    reached: set[int] = set()
    todo = [start]
    while todo:
        for rank in waits.get(todo.pop(), set()) - reached:
            reached.add(rank)
            todo.append(rank)
    return reached - {start}


def _idle(job: dict[int, Dump], groups: Iterable[_Group]) -> list[Said]:
    """Ranks that wait for nothing while most others wait, some of them in a group of theirs."""
    busy = [rank for rank, dump in job.items() if dump.waits]
    if 3 * len(busy) < 2 * len(job):
        return []
    found: dict[int, Said] = {}
    for group in groups:
        waiting = [rank for rank, own in group.members.items() if own.pending or own.partners]
        first = min((number for rank in waiting for number in group.members[rank].pending), default=0)
        for rank, own in group.members.items():
            # Who has enqueued what the others wait in has done its part.
            done_its_part = not group.pairwise and own.enqueued is not None and own.enqueued >= first
            if waiting and not job[rank].waits and not done_its_part:
                text = f"waits for nothing, while {len(busy)} ranks wait, {len(waiting)} of them in {group.label}"
                found.setdefault(rank, Said(rank, first, text))
    return list(found.values())


def _silent(job: dict[int, Dump], groups: Iterable[_Group], found: dict[int, Said]) -> list[Said]:
    """The few ranks that left no dump, where all other members of their group wait in one collective."""
    silent: dict[int, Said] = {}
    for group in groups:
        missing = [rank for rank in group.ranks if rank not in job]
        fronts = {min(own.pending, default=None) for own in group.members.values()}
        if found or not missing or len(group.ranks) < _FEWEST_OF_ALL or len(missing) * 8 > max(8, len(group.ranks)):
            continue
        if len(fronts) == 1 and None not in fronts:
            text = f"left no dump, while all other members of {group.label} wait in collective {fronts.pop()}"
            silent |= {rank: Said(rank, 0, text) for rank in missing}
    return list(silent.values())


def unstarted(job: dict[int, Dump]) -> list[Said]:
    """Ranks whose host enqueued what peers completed, or began, and whose device did not."""
    groups = _groups(job)
    found: dict[int, Said] = {}
    gaps: Counter[int] = Counter()
    for group in groups:
        if group.pairwise:
            continue
        ahead = max((own.completed for own in group.members.values() if own.completed is not None), default=-1)
        for rank, own in group.members.items():
            first = min(own.pending, default=None)
            if first is None or ahead < first or not _is(own.pending[first], _MUTUAL):
                continue
            gaps[rank] += ahead - first + 1
            text = f"its device did not complete collective {first} of {group.label}; peers completed {ahead}"
            found.setdefault(rank, Said(rank, first, text))
    kept = {rank: said for rank, said in found.items() if gaps[rank] >= _FEWEST_BEHIND}
    kept.update({said.rank: said for said in _not_begun(job, groups) if said.rank not in kept})
    return _few(kept.values(), len(job))


def _not_begun(job: dict[int, Dump], groups: Iterable[_Group]) -> list[Said]:
    """Ranks whose device began nothing that is pending, while all their peers began the collective."""
    running = {
        rank
        for rank, dump in job.items()
        if any(record.started for group in dump.groups.values() for record in group.pending.values())
    }
    found = []
    for group in groups:
        common = set.intersection(*(set(own.pending) for own in group.members.values()))
        if not common:
            continue
        first = min(common)
        states = {rank: own.pending[first].started for rank, own in group.members.items()}
        late = [rank for rank, started in states.items() if started is False and rank not in running]
        if late and sum(started is True for started in states.values()) == len(states) - len(late):
            text = f"its device never began collective {first} of {group.label}; peers did"
            found += [Said(rank, first, text) for rank in late]
    return found


def differing(job: dict[int, Dump]) -> list[Said]:
    """Ranks that enqueued another operation, or another size, than most at the same place of a group."""
    found: dict[int, Said] = {}
    for group in _groups(job):
        if group.pairwise:
            continue
        numbers = sorted({number for own in group.members.values() for number in own.pending})
        for number in numbers:
            does = {}
            for rank, own in group.members.items():
                record = own.pending.get(number) or own.done.get(number)
                if record is not None:
                    does[rank] = (record.operation, record.sizes if _is(record, _EVEN) else "")
            if len(set(does.values())) < 2:
                continue
            usual, most = Counter(does.values()).most_common(1)[0]
            others = [rank for rank, doing in does.items() if doing != usual]
            named = list(does) if most == len(others) else others
            for rank in named if most >= len(others) else ():
                text = f"enqueued {does[rank][0]} {does[rank][1]} as collective {number} of {group.label}"
                found.setdefault(rank, Said(rank, number, f"{text}; others {usual[0]} {usual[1]}"))
            break  # what follows the first difference follows from it
    return _few(found.values(), len(job), share=1.0)


def _is(record: Record, operations: tuple[str, ...]) -> bool:
    return any(operation in record.operation for operation in operations)


def _few(said: Iterable[Said], members: int, share: float = 0.5) -> list[Said]:
    found = sorted(said)
    return found if len(found) <= max(1, share * members) else []


RELATIONS: dict[str, Callable[[dict[int, Dump]], list[Said]]] = {
    "recorder_behind": behind,
    "recorder_unstarted": unstarted,
    "recorder_differs": differing,
}


def recorded(operator: Operator, dumps: Sequence[Dump]) -> list[Reading]:
    """The readings of one relation over all dumps of a case."""
    readings = []
    for job in jobs(dumps):
        for said in RELATIONS[operator.kind](job):
            dump = job.get(said.rank) or next(iter(job.values()))
            rank = EntityRef("rank", None, None, said.rank)
            place = (dump.file, 1, None, dump.order, operator.stream, operator.signal, 1, rank)
            readings.append(Reading(*place, said.text, operator.name))
    return readings
