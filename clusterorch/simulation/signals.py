"""Here lives the sampler's view of the signals: families, noise channels, neighbourhoods, collectors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clusterorch.models.compile import Network, entity_kind_index, family_kinds
from clusterorch.models.layout import ENTITY_KINDS, Layout
from clusterorch.models.rows import CONTINUOUS, FIRST
from clusterorch.models.spec import STREAMS
from clusterorch.simulation.channels import KIND_SHIFT

MOST_GAP = 64


class SignalPlan(NamedTuple):
    """S signals, Q blocks of four channels, N nodes."""

    family: np.ndarray  # [S] CONTINUOUS, DISCRETE, CHORUS, FIRST
    offset: np.ndarray  # [S + 1] into the flat values
    classes: np.ndarray  # [S]
    stream: np.ndarray  # [S]
    kind: np.ndarray  # [S] entity kind
    members: np.ndarray  # [S] entities of the kind
    on_node: np.ndarray  # [S] values a node's cell carries; 0: the job's cell carries them all
    outlier: np.ndarray  # [S, 3]
    decay: np.ndarray  # [S, MOST_GAP] memory ** gap
    spread: np.ndarray  # [S, MOST_GAP]
    block_entity: np.ndarray  # [Q] first entity of the counter
    block_count: np.ndarray  # [Q]
    block_number: np.ndarray  # [Q]
    block_signal: np.ndarray  # [Q, 4] signal of each word, -1 none
    ensemble: np.ndarray  # first speakers
    continuous: np.ndarray  # continuous signals
    span_start: np.ndarray  # [kinds, kinds] of (site kind, entity kind) in `span`, -1: all at rest
    span: np.ndarray  # [.., 6] near start, stop, step, then at the site
    lost: np.ndarray  # [streams]
    delay: np.ndarray  # [streams, most delay] cumulated
    nodes: int
    widest: int


def signal_plan(network: Network) -> SignalPlan:
    """Lay the signals out for the kernels."""
    spec, layout = network.spec, network.layout
    signals, families = spec.signal, family_kinds(spec)
    gaps = np.arange(MOST_GAP)
    decay = np.array([s.memory ** np.maximum(gaps, 1) for s in signals])
    decay[:, 0] = 0.0  # no earlier sample
    first = families == FIRST
    kinds = np.array([entity_kind_index(s.entity) for s in signals], dtype=np.int64)
    members = np.array([layout.count(s.entity) for s in signals], dtype=np.int64)
    hosted = np.array([s.entity in ("gpu", "rank", "link", "node") for s in signals]) & ~first
    blocks = _blocks(network, families)
    span_start, span = _spans(layout, {s.entity for s in signals}, {b.variant.spec.site for b in network.blocks})
    return SignalPlan(
        family=families, offset=network.signal_offset, kind=kinds, members=members,
        classes=np.array([{"presence": 2, "count": 5}.get(s.family, len(s.values)) for s in signals], dtype=np.int64),
        stream=np.array([STREAMS.index(s.stream) for s in signals], dtype=np.int64),
        on_node=np.where(hosted, members // layout.nodes, 0),
        outlier=np.array([(o.probability, o.mean, o.sd) if (o := s.outlier) else (0.0, 0.0, 1.0) for s in signals]),
        decay=decay, spread=np.sqrt(1.0 - decay * decay),
        block_entity=np.array([b[0] << KIND_SHIFT for b in blocks], dtype=np.int64),
        block_count=np.array([b[1] for b in blocks], dtype=np.int64),
        block_number=np.array([b[2] for b in blocks], dtype=np.int64),
        block_signal=np.array([b[3] for b in blocks], dtype=np.int64).reshape(-1, 4),
        ensemble=np.flatnonzero(first), continuous=np.flatnonzero(families == CONTINUOUS),
        span_start=span_start, span=span, **_cells(network),
        nodes=layout.nodes, widest=int(max(members.max(), layout.nodes + 1)),
    )  # fmt: skip


def _blocks(network: Network, families: np.ndarray) -> list[tuple[int, int, int, list[int]]]:
    """(kind, entities, block, signals) of every four channels of a kind."""
    blocks = []
    for kind, name in enumerate(ENTITY_KINDS):
        own = [s for s, x in enumerate(network.spec.signal) if x.entity == name and families[s] != FIRST]
        for q in range(0, len(own), 4):
            four = own[q : q + 4]
            blocks.append((kind, network.layout.count(name), q // 4, four + [-1] * (4 - len(four))))
    return blocks


def _spans(layout: Layout, entities: set[str], sites: set[str]) -> tuple[np.ndarray, np.ndarray]:
    start = np.full((len(ENTITY_KINDS), len(ENTITY_KINDS)), -1, dtype=np.int64)
    parts, size = [np.zeros((1, 6), dtype=np.int64)], 1
    for site_kind in ENTITY_KINDS:
        for kind in ENTITY_KINDS:
            site_level, near_level = layout.relation_levels(site_kind, kind)
            if site_kind not in sites or kind not in entities or (site_level, near_level) == (None, None):
                continue
            start[entity_kind_index(site_kind), entity_kind_index(kind)] = size
            parts.append(
                np.concatenate([_ranges(layout, site_kind, kind, x) for x in (near_level, site_level)], axis=1)
            )
            size += len(parts[-1])
    return start, np.concatenate(parts)


def _ranges(layout: Layout, site_kind: str, kind: str, level: str | None) -> np.ndarray:
    """[sites, 3] start, stop and step of the entities in the group that each site points to."""
    if level is None:
        return np.tile([0, 0, 1], (layout.count(site_kind), 1))
    group = layout.site_group(site_kind, kind, level)
    if level == "rail":
        count = layout.count(kind)
        return np.stack([group, np.full_like(group, count), np.full_like(group, layout.rails)], axis=1)
    of = layout.groups(kind, level)  # ascending
    return np.stack([np.searchsorted(of, group), np.searchsorted(of, group, "right"), np.ones_like(group)], axis=1)


def _cells(network: Network) -> dict[str, np.ndarray]:
    streams = {s.name: s for s in network.spec.stream}
    most = max((s.max_delay for s in network.spec.stream), default=0)
    lost, delay = np.zeros(len(STREAMS)), np.full((len(STREAMS), max(most, 1)), np.inf)
    for i, name in enumerate(STREAMS):
        if name in streams:
            declared = streams[name]
            stay = declared.delay / (1.0 + declared.delay)
            lost[i] = declared.lost
            delay[i, : declared.max_delay] = 1.0 - stay ** np.arange(1, declared.max_delay + 1)
    return {"lost": lost, "delay": delay}
