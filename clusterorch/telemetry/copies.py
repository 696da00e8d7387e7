"""Here live the copies of a job's state: what they are called, and which file of one is too small."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from statistics import median

from clusterorch.telemetry.readings import EntityRef, Reading, Sample
from clusterorch.telemetry.rows import Operator

_STEP = re.compile(r"(?:step|iter|epoch|ckpt|checkpoint|update|batch)[a-z]{0,9}[-_=.]{0,2}\d", re.IGNORECASE)
_NUMBER = re.compile(r"\d+")
_OF_MANY = re.compile(r"(?P<this>\d+)-of-(?P<all>\d+)")
_LONGEST_NAME = 128
_LONGEST_PATH = 1024
_UNITS = {"": 1.0, "b": 1.0, "k": 2.0**10, "m": 2.0**20, "g": 2.0**30, "t": 2.0**40, "p": 2.0**50}
# Sharded states need not be cut evenly: siblings that differ by themselves prove nothing.
_ALIKE = 0.15
_MOST_ALIKE = 2 / 3


def checkpoint_name(path: str) -> str | None:
    """The part of a path that tells one copy of a job's state from another.

    >>> checkpoint_name("/ck/run7/global_step40000/mp_rank_00_model_states.pt"), checkpoint_name("s3://b/run/step-51/")
    ('global_step40000', 'step-51')
    >>> checkpoint_name("'/drive/ck/epoch=4-step=40000.ckpt'."), checkpoint_name("./out/last.ckpt")
    ('epoch=4-step=40000.ckpt', 'last.ckpt')
    """
    parts = [part for part in path[:_LONGEST_PATH].strip(" '\"`.,:;)]}>").split("/") if part and part != "."]
    if not parts:
        return None
    stepped = [part for part in parts if _STEP.search(part)]
    return (stepped[-1] if stepped else parts[-1])[:_LONGEST_NAME]


def undersized(operator: Operator, samples: Iterable[Sample]) -> list[Reading]:
    """Files much smaller than those named alike but for their numbers.

    A copy is written in the same shape each time, so its files have the sizes of their siblings; one that was cut
    short does not.  Of three and more, most must be of one size and the odd one below `1 / factor` of it; of two,
    the smaller must be below one half, and below `1 / factor`.
    """
    families: dict[str, list[tuple[float, str, Sample]]] = defaultdict(list)
    for sample in samples:
        path, size = sample.fields.get("path", ""), sample.number * _UNITS[sample.fields.get("unit", "").lower()[:1]]
        family = _family(path)
        if family is not None and size >= 0:
            families[family].append((size, path, sample))
    readings = []
    for members in families.values():
        newest = {path: (size, sample) for size, path, sample in members}  # a file that is listed twice is one file
        sizes = [size for size, _ in newest.values()]
        usual = max(sizes) if len(sizes) == 2 else median(sizes)
        alike = sum(abs(size - usual) <= _ALIKE * usual for size in sizes)
        if len(sizes) < 2 or usual <= 0 or (len(sizes) > 2 and alike < _MOST_ALIKE * (len(sizes) - 1)):
            continue
        most = usual / (operator.factor if len(sizes) > 2 else max(2.0, operator.factor))
        readings += [
            sample.base._replace(
                signal=operator.signal,
                stream=operator.stream,
                value=1,
                entity=EntityRef("checkpoint", None, checkpoint_name(path)),
            )
            for path, (size, sample) in newest.items()
            if size < most
        ]
    return readings


def _family(path: str) -> str | None:
    """What a file and its siblings have in common; None if it has none.

    A state in pieces that are numbered to the last ("3-of-4") is cut at a size: its last piece is smaller by nature,
    so a piece is only compared with the same piece of other copies.
    """
    path = path.strip().rstrip("/")
    if not _NUMBER.search(path):
        return None
    folder, slash, name = path.rpartition("/")
    if _OF_MANY.search(name):
        return _NUMBER.sub("#", folder) + slash + name
    return _NUMBER.sub("#", path)
