"""Here lives the settling of names: one device that the lines call by many names becomes one entity.

A GPU has an address, a name of its own and an index; a network link has an interface, a device, an address and
NCCL's number.  Lines that give two names at once (`Place`) tell which belong together; where a host has only one
of each, that is told too.  A name that stands for two things is left as it is.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from clusterorch.telemetry.patterns import Formats
from clusterorch.telemetry.readings import EntityRef, Ingested, Place, Reading

_HOSTED = ("gpu", "node", "link")
_GPU_DRIVERS = {"nvidia", "amdgpu", "3D", "VGA compatible"}
_PORT_DRIVERS = {"pcieport", "pci"}
_MAKES = {
    "mlx5_core": "mlx5",
    "mlx4_en": "mlx4",
    "bnxt_en": "bnxt_re",
    "ice": "irdma",
    "i40e": "irdma",
    "ionic": "ionic",
}
_DEVICE = re.compile(r"(?:mlx[45]|bnxt_re|irdma|hfi1|ionic|efa|qedr|hns)_?\w{0,16}$")
_MOST_STEPS = 4  # address -> interface -> device
_NEAR = 16  # lines between what a port says and what the device below it says
_Key = tuple[str, str | None, str]  # kind, host, name
_Names = dict[_Key, set[str]]


def settle(result: Ingested, formats: Formats) -> None:
    """Give the readings of one device one entity; take away what speaks of no GPU, or says a thing twice."""
    _home(result, formats)
    names = _other_names(result.places)
    _pair_up(result, names)
    ports = _below(result, names)
    foreign = _foreign(result.places)
    indices = {("gpu", p.host, p.pci): p.index for p in result.places if p.pci and p.index is not None}

    def settled(entity: EntityRef) -> EntityRef:
        if entity.kind not in ("gpu", "link"):
            return entity
        name = entity.name or (f"index {entity.index}" if entity.index is not None else None)
        if name is None:
            return entity
        name = _canonical(names, entity.kind, entity.host, name)
        name = ports.get((entity.host, name), name) if entity.kind == "gpu" else name
        if name.startswith("index "):
            return entity
        index = indices.get(("gpu", entity.host, name), entity.index) if entity.kind == "gpu" else None
        return entity._replace(name=name, index=index)

    kept = _without_repeats(result.readings, formats)
    result.readings = [
        reading._replace(entity=settled(reading.entity))
        for reading in kept
        if reading.entity.kind != "gpu" or (reading.entity.host, reading.entity.name) not in foreign
    ]


def _home(result: Ingested, formats: Formats) -> None:
    """Say on which host a line was written where its file's name does, or all else in the file or in all files."""
    only = next(iter(result.hosts)) if len(result.hosts) == 1 else None
    spoken: dict[str, set[str]] = defaultdict(set)
    for reading in result.readings:
        spoken[reading.file] |= {ref.host for ref in (reading.entity, reading.speaker) if ref and ref.host}
    homes: dict[str, str | None] = {}
    for summary in result.files:
        named = [host for host in result.hosts if _stands_in(host, summary.file)]
        told = next(iter(spoken[summary.file])) if len(spoken[summary.file]) == 1 else only
        homes[summary.file] = max(named, key=len) if named else told

    # A line about somebody else, a peer that it leaves unnamed, is not about the host on which it was written.
    elsewhere = {row.name for row in formats.pattern.values() if row.entity and row.entity.host == "peer"}

    def at_home(reading: Reading) -> Reading:
        entity, home = reading.entity, homes.get(reading.file)
        if entity.kind not in _HOSTED or entity.host is not None or home is None or reading.pattern in elsewhere:
            return reading
        return reading._replace(entity=entity._replace(host=home))

    result.readings = [at_home(reading) for reading in result.readings]
    if only is not None:
        result.places = [p._replace(host=only) if _of_a_device(p) and p.host is None else p for p in result.places]


def _stands_in(host: str, file: str) -> bool:
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(host)}(?![A-Za-z0-9])", file) is not None


def _of_a_device(place: Place) -> bool:
    return place.rank is None and any((place.uuid, place.driver, place.port, place.device, place.netdev, place.pci))


def _other_names(places: Iterable[Place]) -> _Names:
    """For each name, the better ones that lines give beside it."""
    better: _Names = defaultdict(set)

    def says(kind: str, host: str | None, name: str | None, best: str | None) -> None:
        if name and best and name != best:
            better[kind, host, name].add(best)

    for place in places:
        index = f"index {place.index}" if place.index is not None else None
        if place.device or place.netdev or place.guid:
            for name in (place.netdev, place.guid, index, place.pci):
                says("link", place.host, name, place.device)
            if not place.device:
                for name in (place.pci, place.guid):
                    says("link", place.host, name, place.netdev)
        else:
            says("gpu", place.host, place.uuid, place.pci)
            says("gpu", place.host, index, place.pci or place.uuid)
    return better


def _pair_up(result: Ingested, names: _Names) -> None:
    """Take the only interface and the only device of a make on a host for one link, and a number for its like."""
    makes = {(p.host, p.netdev): _MAKES.get(p.driver or "", "") for p in result.places if p.netdev and p.driver}
    links: dict[str | None, set[str]] = defaultdict(set)
    numbers: dict[str | None, set[int]] = defaultdict(set)
    for reading in result.readings:
        entity = reading.entity
        if entity.kind == "link" and entity.name:
            links[entity.host].add(_canonical(names, "link", entity.host, entity.name))
        elif entity.kind == "link" and entity.index is not None:
            numbers[entity.host].add(entity.index)
    for host, named in links.items():
        devices = {name for name in named if _DEVICE.match(name)}
        interfaces = {name for name in named - devices if makes.get((host, name))}
        if len(interfaces) == 1 and len(devices) == 1:
            (interface,), (device,) = interfaces, devices
            if device.startswith(makes[host, interface]):
                names["link", host, interface].add(device)
        for number in numbers[host]:
            alike = {name for name in devices if name.endswith(f"_{number}")}
            if len(alike) == 1 and ("link", host, f"index {number}") not in names:
                names["link", host, f"index {number}"] |= alike


def _canonical(names: _Names, kind: str, host: str | None, name: str, steps: int = _MOST_STEPS) -> str:
    """The best name of a device; a name that stands for two is its own."""
    if not steps:
        return name
    better = {_canonical(names, kind, host, other, steps - 1) for other in names.get((kind, host, name), ())}
    return next(iter(better)) if len(better) == 1 else name


def _foreign(places: Iterable[Place]) -> set[tuple[str | None, str | None]]:
    """Addresses of devices that are neither GPUs nor the ports above them."""
    drivers: dict[tuple[str | None, str | None], set[str]] = defaultdict(set)
    for place in places:
        if place.driver and place.pci:
            drivers[place.host, place.pci].add(place.driver)
    return {at for at, named in drivers.items() if not named & (_GPU_DRIVERS | _PORT_DRIVERS)}


def _below(result: Ingested, names: _Names) -> dict[tuple[str | None, str], str]:
    """The one GPU below each PCIe port, where lines tell which it is."""
    places = [place for place in result.places if _of_a_device(place)]
    bridges: dict[tuple[str | None, str], str] = {}  # port -> domain and bus below it
    found: dict[tuple[str | None, str], set[str]] = defaultdict(set)
    gpus: dict[str | None, set[str]] = defaultdict(set)
    for place in places:
        if place.port and place.bus:
            bridges[place.host, place.port] = f"{place.port[:4]}:{place.bus}"
        if place.pci and (place.uuid or place.driver in _GPU_DRIVERS):
            gpus[place.host].add(place.pci)
        if place.port and place.pci and place.port != place.pci:
            found[place.host, place.port].add(place.pci)
    for reading in result.readings:
        if reading.entity.kind == "gpu" and reading.entity.name and not reading.signal.startswith(("aer_", "pcie_")):
            gpus[reading.entity.host].add(_canonical(names, "gpu", reading.entity.host, reading.entity.name))
    for host, port in bridges:
        found[host, port] |= _reached(bridges, host, port, gpus[host])
    for (host, port), below in _said_together(result).items():
        found[host, port] = found[host, port] or {below}
    for host, named in gpus.items():
        alone = {port for port in _ports(result, host) if port not in named and not found.get((host, port))}
        if len(named) == 1 and len(alone) == 1:  # whatever the port reports, one GPU is all that is there
            found[host, next(iter(alone))] = set(named)
    return {at: next(iter(below)) for at, below in found.items() if len(below) == 1 and at[1] not in gpus[at[0]]}


def _ports(result: Ingested, host: str | None) -> set[str]:
    """Addresses on a host that speak of errors of the bus and are ports: they lie on the first bus of their domain."""
    named = {r.entity.name for r in result.readings if r.entity.host == host and r.signal.startswith("aer_")}
    driven = {place.pci for place in result.places if place.host == host and place.driver == "pcieport"}
    return {name for name in named if name and (name in driven or name[5:7] == "00")}


def _reached(bridges, host: str | None, port: str, gpus: set[str]) -> set[str]:
    """The GPUs on the buses below a port, through the ports on those buses."""
    reached: set[str] = set()
    waiting, seen = [port], {port}
    while waiting:
        bus = bridges[host, waiting.pop()]
        reached |= {gpu for gpu in gpus if gpu[:7] == bus}
        further = [below for at, below in bridges if at == host and below[:7] == bus and below not in seen]
        seen |= set(further)
        waiting += further
    return reached


def _said_together(result: Ingested) -> dict[tuple[str | None, str], str]:
    """For each port, the GPU whose recovery fails right after what the port reports."""
    drivers: dict[tuple[str | None, str], set[str]] = defaultdict(set)
    for place in result.places:
        if place.driver and place.pci:
            drivers[place.host, place.pci].add(place.driver)
    votes: dict[tuple[str | None, str], Counter[str]] = defaultdict(Counter)
    port: Reading | None = None
    for reading in sorted(result.readings, key=lambda one: one.order):
        entity = reading.entity
        if not reading.signal.startswith("aer_") or entity.name is None:
            continue
        driven = drivers[entity.host, entity.name]
        if not driven & _GPU_DRIVERS:
            port = reading if "pcieport" in driven else None
        elif port is not None and _soon_after(port, reading) and port.entity.name != entity.name:
            votes[entity.host, port.entity.name or ""][entity.name] += 1
    return {at: heard.most_common(1)[0][0] for at, heard in votes.items() if len(heard) == 1}


def _soon_after(port: Reading, reading: Reading) -> bool:
    same = port.file == reading.file and port.entity.host == reading.entity.host
    return same and reading.order - port.order <= _NEAR


def _without_repeats(readings: Sequence[Reading], formats: Formats) -> list[Reading]:
    """Leave out lines that only repeat, in a file where the rows that they repeat have matched."""
    yields = {name: set(row.yields_to) for name, row in formats.pattern.items() if row.yields_to}
    if not yields:
        return list(readings)
    matched: dict[str, set[str]] = defaultdict(set)
    for reading in readings:
        matched[reading.file].add(reading.pattern)
    return [r for r in readings if not (r.pattern in yields and yields[r.pattern] & matched[r.file])]
