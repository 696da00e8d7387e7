"""Here lives the reader of metrics as a scrape shows them: a name, labels, a number, perhaps a time."""

from __future__ import annotations

import re
from typing import NamedTuple

from clusterorch.telemetry.device_samples import number_of
from clusterorch.telemetry.entities import pci_name, uuid_name
from clusterorch.telemetry.readings import EntityRef

_METRIC = re.compile(
    r"(?P<name>[A-Za-z_:][\w:]{2,120})\{(?P<labels>.{0,3000})\}\s{1,4}(?P<number>[-+.\deENaInf]{1,32})"
)
_LABEL = re.compile(r'(?P<key>[A-Za-z_]\w{0,60})="(?P<word>[^"]{0,200})"')
_COMMENT = re.compile(r"# (?:HELP|TYPE|UNIT|EOF)\b")
_HOSTS = ("Hostname", "hostname", "node", "kubernetes_node", "nodename", "host", "instance")
_INDICES = ("gpu", "minor_number", "gpu_index", "index")
_ADDRESSES = ("pci_bus_id", "pciBusId", "pci_bus", "busid")


class Metric(NamedTuple):
    """A sample of one metric of one device."""

    name: str
    word: str
    entity: EntityRef
    labels: dict[str, str]
    pci: str | None
    uuid: str | None


def comment(text: str) -> bool:
    """Whether a line only describes a metric."""
    return _COMMENT.match(text) is not None


def metric_of(text: str, host: str | None) -> Metric | None:
    """The metric that a line shows, or None.

    A value that stands for "none" shows nothing, and is an empty word.

    >>> metric_of('DCGM_FI_DEV_GPU_TEMP{gpu="3",UUID="GPU-1f2e3d4c",Hostname="n17"} 61', None).entity
    EntityRef(kind='gpu', host='n17', name='gpu-1f2e3d4c', index=3)
    """
    found = _METRIC.match(text.strip(), 0, 3400)
    if found is None:
        return None
    labels = {label["key"]: label["word"] for label in _LABEL.finditer(found["labels"])}
    index = next((labels[key] for key in _INDICES if re.fullmatch(r"[0-9]{1,6}", labels.get(key, ""))), None)
    pci = next((pci_name(labels[key]) for key in _ADDRESSES if labels.get(key)), None)
    uuid = uuid_name(labels.get("UUID") or labels.get("uuid") or "")
    own = next((labels[key] for key in _HOSTS if labels.get(key)), None)
    entity = EntityRef("gpu", own.split(":", 1)[0] if own else host, pci or uuid, int(index) if index else None)
    number = number_of(found["number"])
    return Metric(found["name"], "" if number is None or _blank(number) else found["number"], entity, labels, pci, uuid)


def _blank(number: float) -> bool:
    """Whether a number is one of those with which DCGM says that there is none."""
    return 0x7FFFFFF0 <= number <= 0x7FFFFFFF or number >= 0x7FFFFFFF0000 or number < -1e9
