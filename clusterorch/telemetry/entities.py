"""Here live the names of entities: what a line calls them, brought into one spelling."""

from __future__ import annotations

import re
from collections.abc import Mapping

from clusterorch.telemetry.copies import checkpoint_name
from clusterorch.telemetry.readings import LOCAL, EntityRef
from clusterorch.telemetry.rows import EntityRule

_PCI = re.compile(
    r"(?:(?P<domain>[0-9a-fA-F]{1,8}):)?(?P<bus>[0-9a-fA-F]{1,2}):(?P<device>[0-9a-fA-F]{1,2})(?:\.[0-9a-fA-F])?$"
)
_BUS_ID = re.compile(r"[0-9a-fA-F]{4,8}$")
_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-fA-F-]{8,72}$")
_LONGEST_NAME = 128


def pci_name(text: str) -> str | None:
    """A PCI address as domain:bus:device in lower case, or None if it is none.

    >>> pci_name("00000000:5D:00.0"), pci_name("5d000"), pci_name("0000:61:00")
    ('0000:5d:00', '0000:5d:00', '0000:61:00')
    """
    text = text.strip(" :.")
    if found := _PCI.match(text):
        domain = int(found["domain"] or "0", 16)
        return f"{domain:04x}:{int(found['bus'], 16):02x}:{int(found['device'], 16):02x}"
    if _BUS_ID.match(text):
        number = int(text, 16)  # as NCCL prints it: bus, device and function without separators
        return f"{number >> 20:04x}:{number >> 12 & 0xFF:02x}:{number >> 4 & 0xFF:02x}"
    return None


def uuid_name(text: str) -> str | None:
    """The name that a GPU has of itself, in lower case, or None if it is none.

    >>> uuid_name("GPU-8D0ac9b1-7714-22f0"), uuid_name("0000:61:00")
    ('gpu-8d0ac9b1-7714-22f0', None)
    """
    text = text.strip()
    return text.lower() if _UUID.match(text) else None


def refer(rule: EntityRule, said: Mapping[str, str | None], context: Mapping[str, str]) -> EntityRef:
    """The entity that a line is about.

    Args:
        rule: where its name stands.
        said: the named groups of the line itself; they come before the context.
        context: what the prefix of the line or its section says.
    """

    def get(key: str | None) -> str | None:
        if key is None:
            return None
        text = said.get(key) or context.get(key)
        return text.strip()[:_LONGEST_NAME] or None if text else None

    host = get(rule.host) if rule.host else context.get("host")
    if rule.kind == "job":
        return EntityRef("job")
    if rule.kind == "node":
        return EntityRef("node", host)
    if rule.kind == "rank":
        return _rank(rule, said, get, host)
    if rule.kind == "link":
        device = get(rule.device) or pci_name(get(rule.pci) or "")
        if device is not None and device.isascii() and device.isdigit():
            return EntityRef("link", host, None, int(device))
        return EntityRef("link", host, device)
    index = get(rule.index)
    name = get(rule.pci) if rule.kind == "gpu" else get(rule.device)
    if rule.kind == "gpu" and name:
        name = pci_name(name.removeprefix("PCI:")) or uuid_name(name)
    if rule.kind == "checkpoint" and rule.device:
        name = checkpoint_name(said.get(rule.device) or context.get(rule.device) or "")
    return EntityRef(rule.kind, host if rule.kind == "gpu" else None, name, _whole(index))


def _rank(rule, said, get, host) -> EntityRef:
    if (rank := _whole(get(rule.rank))) is not None:
        # A rank that somebody else names need not sit on the speaker's host.
        elsewhere = rule.host is None and rule.rank is not None and bool(said.get(rule.rank))
        return EntityRef("rank", None if elsewhere else host, None, rank)
    if (local := _whole(get(rule.local))) is not None:
        return EntityRef("rank", host, LOCAL, local)
    if rule.fixed is not None:
        return EntityRef("rank", host, None, rule.fixed)
    pid = get(rule.pid)
    return EntityRef("rank", host, f"pid {pid}" if pid else None)


def speaker_of(context: Mapping[str, str]) -> EntityRef | None:
    """Who writes a line, as far as its prefix tells."""
    host = context.get("host")
    if (rank := _whole(context.get("rank"))) is not None:
        return EntityRef("rank", host, None, rank)
    if (local := _whole(context.get("local"))) is not None:
        return EntityRef("rank", host, LOCAL, local)
    return EntityRef("node", host) if host else None


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 9 else None
