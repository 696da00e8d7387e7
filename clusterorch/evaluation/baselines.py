"""Here live the trivial rows of a table: what the prior says, and what an ordered list of patterns says."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from clusterorch.errors import IngestError
from clusterorch.inference.priors import benign_mix, incident_mix
from clusterorch.models.compile import Network
from clusterorch.models.ground import HEALTHY
from clusterorch.models.reading import read_toml

MOST_BYTES = 64 << 20  # looked at in one file
DEFAULT_ROWS = Path("data/baselines/keywords.toml")


class Keyword(NamedTuple):
    """A mode, and what names it."""

    mode: str
    pattern: re.Pattern[str]


class Rows(NamedTuple):
    """What the trivial rows go by: keywords in order, and the signals that are tried alone."""

    keywords: tuple[Keyword, ...]
    alone: tuple[str, ...]


def read_rows(file: str | Path = DEFAULT_ROWS) -> Rows:
    """Read `[[keyword]]` rows and `[alone] signals`.

    Raises:
        IngestError: the file is not there, or a row is no row.
    """
    try:
        raw = read_toml(Path(file))
        words = tuple(Keyword(row["mode"], re.compile(row["pattern"], re.IGNORECASE)) for row in raw["keyword"])
        return Rows(words, tuple(raw["alone"]["signals"]))
    except (OSError, KeyError, TypeError, ValueError, re.error) as error:
        raise IngestError(f"{file}: not a file of keyword rows ({error!r}); see {DEFAULT_ROWS}") from error


def prior_modes(network: Network) -> dict[str, float]:
    """Probability of each mode under the incident prior, before any evidence."""
    prior = network.spec.prior
    healthy = 0.12 if prior.healthy is None else prior.healthy
    share = (1.0 - healthy) * incident_mix(network, prior.uniform_share) + 0.5 * healthy * benign_mix(network)
    modes = {mode.name: 0.0 for mode in network.spec.mode} | {HEALTHY: 1.0 - float(share.sum())}
    for block, p in zip(network.blocks, share, strict=True):
        modes[block.variant.mode] += float(p)
    return modes


def keyword_modes(keywords: Iterable[Keyword], folder: Path, prior: dict[str, float]) -> dict[str, float]:
    """What the list says: the first pattern that matches anywhere names the mode, later ones come after it.

    Where no pattern matches, the job is called healthy.  A verdict counts as certain but for the floor of the
    score; what is not named keeps the order of the prior.
    """
    texts = [_text(file) for file in sorted(folder.rglob("*")) if file.is_file()]
    named = [word.mode for word in keywords if any(word.pattern.search(text) for text in texts)]
    order = list(dict.fromkeys(named or [HEALTHY]))
    # Far below any floor, and in order: only the first counts, the others are for AC@3.
    rest = {mode: 1e-12 * p for mode, p in prior.items()}
    later = {mode: 1e-9 / (i + 1) for i, mode in enumerate(order[1:])}
    return rest | later | {order[0]: 1.0 - sum((rest | later).values()) + (rest | later).get(order[0], 0.0)}


def _text(file: Path) -> str:
    with file.open("rb") as stream:
        return stream.read(MOST_BYTES).decode("utf-8", "replace")
