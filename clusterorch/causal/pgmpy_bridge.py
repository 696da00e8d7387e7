"""Here lives the view of a declared model as a network of pgmpy: one variant, unrolled over a few slices.

pgmpy takes seconds to import, so it is imported where it is used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from clusterorch.causal.graph import Spec
from clusterorch.causal.unrolled import Context, unroll
from clusterorch.errors import ImpossibleEvidence, OutputExists

if TYPE_CHECKING:
    from pgmpy.factors.discrete import TabularCPD
    from pgmpy.models import DiscreteBayesianNetwork


def to_pgmpy(
    spec: Spec,
    layout: Any,
    variant: str,
    slices: int,
    contexts: Sequence[Context | tuple[str, bool]],
    *,
    sites: Sequence[int] | None = None,
) -> DiscreteBayesianNetwork:
    """One variant (`mode.variant`) with the mechanisms it reaches, over `slices` slices.

    The variables are those of `clusterorch.causal.unrolled.unroll`, without signals: these enter
    through `virtual_evidence`.

    Args:
        spec: a checked model file.
        layout: how many nodes, copies and sites there are.
        variant: which one; it starts as in the whole model, and what the others would take stays in none.
        slices: how many; the fault slot is empty before the first.
        contexts: published phase of each slice, and whether it is the last scheduled one of a save.
        sites: sites to keep, each at its own probability; None: all of the layout.

    Raises:
        InvalidModel: the causal graph has a cycle, or names a thing that is not declared.
    """
    from pgmpy.models import DiscreteBayesianNetwork

    if len(contexts) != slices:
        raise ValueError(f"{len(contexts)} contexts for {slices} slices; give one a slice")
    tables = unroll(spec, layout, variant, [Context(*context) for context in contexts], sites)
    states = {name: table.states for name, table in tables.items()}
    network = DiscreteBayesianNetwork()
    network.add_nodes_from(tables)
    network.add_edges_from((parent, name) for name, table in tables.items() for parent in table.parents)
    network.add_cpds(*(_cpd(name, states, table.parents, table.values) for name, table in tables.items()))
    return network


def _cpd(name: str, states: Mapping[str, list[str]], parents: list[str], values: np.ndarray) -> TabularCPD:
    from pgmpy.factors.discrete import TabularCPD

    cards = [len(states[parent]) for parent in parents]
    names = {variable: states[variable] for variable in (name, *parents)}
    return TabularCPD(name, len(states[name]), values, parents or None, cards or None, state_names=names)


def virtual_evidence(network: DiscreteBayesianNetwork, likelihoods: Mapping[str, Sequence[float]]) -> list[TabularCPD]:
    """Likelihoods of the states of some variables, as `VariableElimination.query` takes them.

    Query with elimination_order="greedy".  Only ratios matter: each vector is scaled to a largest
    entry of 1, since pgmpy takes entries of at most 1.

    Raises:
        ImpossibleEvidence: a vector rules out every state.
    """
    factors = []
    for name, given in likelihoods.items():
        values = np.asarray(given, dtype=float)
        if not values.max() > 0.0:  # also true of nan
            raise ImpossibleEvidence(f"{name}: likelihoods {given} leave no state possible")
        states = {name: network.get_cpds(name).state_names[name]}
        factors.append(_cpd(name, states, [], (values / values.max())[:, None]))
    return factors


def marginal(network: DiscreteBayesianNetwork, variable: str, likelihoods: Mapping[str, Sequence[float]]) -> np.ndarray:
    """[states] p(variable | virtual evidence) by pgmpy's variable elimination, the order that it calls greedy."""
    from pgmpy.inference import VariableElimination

    factor = VariableElimination(network).query(
        [variable],
        virtual_evidence=virtual_evidence(network, likelihoods),
        elimination_order="greedy",
        show_progress=False,
    )
    return np.asarray(factor.values)


def export_bif(
    spec: Spec,
    layout: Any,
    variant: str,
    path: str | Path,
    contexts: Sequence[Context | tuple[str, bool]] = (Context("step"), Context("step")),
) -> None:
    """Write the network of the first two slices in the Bayesian interchange format.

    Variables are renamed to letters, digits and underscores: `edge:P>C[1]` becomes `edge_P_C_1`.

    Raises:
        OutputExists: there is a file at `path`.
    """
    from pgmpy.models import DiscreteBayesianNetwork
    from pgmpy.readwrite import BIFWriter

    if Path(path).exists():
        raise OutputExists(f"{path} is there already")
    network = to_pgmpy(spec, layout, variant, 2, contexts)
    plain = {name: re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_") for name in network.nodes}
    renamed = DiscreteBayesianNetwork([(plain[a], plain[b]) for a, b in network.edges])
    renamed.add_nodes_from(plain.values())
    for cpd in network.get_cpds():
        name, *parents = (plain[v] for v in cpd.variables)
        states = {plain[v]: list(cpd.state_names[v]) for v in cpd.variables}
        renamed.add_cpds(_cpd(name, states, parents, cpd.get_values()))
    Path(path).write_text(str(BIFWriter(renamed)), encoding="utf-8")


def export_dot(graph: nx.DiGraph) -> str:
    """A graph in the language of Graphviz; shapes tell modes, variants, mechanisms and signals apart."""
    shapes = {"mode": "box3d", "variant": "box", "mechanism": "ellipse", "signal": "note"}
    lines = [f"digraph {_quoted(graph.name or 'graph')} {{", "  rankdir=LR;"]
    for name, traits in graph.nodes(data=True):
        shape = shapes.get(traits.get("kind", ""), "ellipse")
        lines.append(f"  {_quoted(name)} [shape={shape}, tooltip={_quoted(traits.get('title', ''))}];")
    for tail, head, traits in graph.edges(data=True):
        label = "\n".join((*traits.get("delay", ()), *traits.get("where", ())))
        lines.append(f"  {_quoted(tail)} -> {_quoted(head)} [label={_quoted(label)}];")
    return "\n".join((*lines, "}\n"))


def _quoted(text: Any) -> str:
    escaped = str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
