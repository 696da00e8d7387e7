"""Here lives the comparison of installed versions: which components of one environment contradict each other.

What a listing means is declared in the formats; here only equality counts.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from clusterorch.telemetry.readings import EntityRef, Reading, Sample
from clusterorch.telemetry.rows import Operator

_CORE = re.compile(r"\d{1,6}(?:\.\d{1,6}){0,2}")
_PACKED = re.compile(r"2\d{4}$")  # as NCCL packs its version: 22105 is 2.21.5


def bare(version: str) -> str:
    """The part of a version that two builds of the same source share.

    >>> bare("2.16.2-1+cuda11.8"), bare("22105"), bare("525.085.12")
    ('2.16.2', '2.21.5', '525.85.12')
    """
    if _PACKED.match(version):
        number = int(version)
        version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    found = _CORE.search(version)
    return ".".join(str(int(part)) for part in found[0].split(".")) if found else version


def conflict(operator: Operator, samples: Sequence[Sample], host_of: Callable[[str], str | None]) -> list[Reading]:
    """Components that have to be of one version and are not: within a host, else between hosts.

    Within a host all samples count; between hosts only those of the same component, and the few are named.
    Listings of no known host are those of one host a file.
    """
    hosts: dict[tuple[str | None, str], list[Sample]] = defaultdict(list)
    for sample in samples:
        host = sample.base.entity.host or host_of(sample.base.file)
        hosts[host, "" if host else sample.base.file.rpartition("/")[0]].append(sample)
    readings = []
    for (host, _), mine in hosts.items():
        versions = {version for sample in mine for version in _versions(operator, sample)}
        if len(versions) > 1:
            readings.append(_said(operator, mine[-1], host))
    return readings or _between(operator, hosts)


def _between(operator: Operator, hosts: dict[tuple[str | None, str], list[Sample]]) -> list[Reading]:
    components: dict[str, dict[str, Sample]] = defaultdict(dict)
    for (host, _), mine in hosts.items():
        for sample in mine:
            if host:
                components[sample.fields.get("component", "")][host] = sample
    for at in components.values():
        versions = Counter(_versions(operator, sample)[:1] for sample in at.values())
        if len(versions) < 2:
            continue
        usual, most = versions.most_common(1)[0]
        few = [host for host, sample in at.items() if most == 1 or _versions(operator, sample)[:1] != usual]
        if 2 * len(few) <= len(at) or most == 1:
            return [_said(operator, at[host], host) for host in few]
    return []


def _versions(operator: Operator, sample: Sample) -> tuple[str, ...]:
    """What a line says of versions: a header may name two that have to be one."""
    said = (sample.fields.get(name, "") for name in operator.compare)
    return tuple(bare(version) for version in said if version)


def _said(operator: Operator, sample: Sample, host: str | None) -> Reading:
    return sample.base._replace(
        signal=operator.signal, stream=operator.stream, value=1, entity=EntityRef("node", host), pattern=operator.name
    )
