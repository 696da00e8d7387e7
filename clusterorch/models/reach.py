"""Here lives reach: which mechanisms a variant can bring about, and which rules can then apply."""

from __future__ import annotations

import networkx as nx

from clusterorch.models.ground import HEALTHY, variant_names
from clusterorch.models.spec import ModelSpec, When

_CLASS_OF_EFFECT = {"crash": "down", "stall": "halted", "block_save": "halted", "block_start": "halted"}


def variant_key(name: str) -> str:
    """How a variant, named `mode.variant`, is named in messages.

    >>> variant_key("healthy.clean_exit"), variant_key("a.b")
    ('benign(clean_exit)', 'mode(a).variant(b)')
    """
    mode, _, variant = name.partition(".")
    return f"benign({variant})" if mode == HEALTHY else f"mode({mode}).variant({variant})"


def reached_mechanisms(spec: ModelSpec) -> dict[str, frozenset[str]]:
    """Mechanisms that each variant can bring about, by its full name."""
    graph = nx.DiGraph((edge.from_, edge.to) for edge in spec.edge)
    graph.add_nodes_from(variant_names(spec))
    return {name: frozenset(nx.descendants(graph, name)) for name in variant_names(spec)}


def job_classes(spec: ModelSpec, mechanisms: frozenset[str]) -> set[str]:
    """Job classes other than `moving` that these mechanisms can cause."""
    effects = {m.effect for m in spec.mechanism if m.name in mechanisms}
    return {_CLASS_OF_EFFECT[effect] for effect in effects & _CLASS_OF_EFFECT.keys()}


def can_match(spec: ModelSpec, rule: When, mechanisms: frozenset[str]) -> bool:
    """Whether a rule can match while these mechanisms, and no others, come and go."""
    return set(rule.needs) <= mechanisms and (rule.job in (None, "moving") or rule.job in job_classes(spec, mechanisms))


def sees(spec: ModelSpec, rule: When, mechanisms: frozenset[str]) -> bool:
    """Whether it matters to a rule that some of these mechanisms are active."""
    if not can_match(spec, rule, mechanisms):
        return False
    by_job = rule.job is not None and bool(job_classes(spec, mechanisms))
    return bool(rule.needs) or by_job or not mechanisms.isdisjoint(rule.absent_mechanisms)
