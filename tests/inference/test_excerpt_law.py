"""The excerpt filter against its twin, state by state: what passes between items, and what each line says."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from clusterorch.inference.backward import log_likelihoods
from clusterorch.inference.excerpts import Shown
from clusterorch.inference.filtering import NO_SOFT, Filter, SliceEvidence
from clusterorch.inference.marks import Item, MarkFilter
from clusterorch.inference.priors import STEP, OnsetPrior
from clusterorch.inference.transition import NO_CLASS
from clusterorch.models.compile import Network
from clusterorch.models.spec import PHASES
from tests.inference.episodes import EXCERPT, SPAN, everything, excerpt_world, reference
from tests.inference.excerpt_twin import State, Twin, state_key, state_numbers
from tests.inference.worlds import LIMITS, random_values


@cache
def network() -> Network:
    return excerpt_world().hidden_network


@cache
def twin() -> Twin:
    return Twin(network(), LIMITS, EXCERPT, SPAN, seed=21, again=0.3)


@cache
def states() -> tuple[list[State], np.ndarray]:
    """All reachable states, and their numbers in the network."""
    numbers, found = state_numbers(network()), twin().reachable()
    return found, np.array([numbers[state_key(twin(), state)] for state in found])


def moved(mass: np.ndarray, *, early: bool) -> np.ndarray:
    """Push a distribution over `states()` one slice forward by the twin's draws."""
    found, _ = states()
    number, after = {state: i for i, state in enumerate(found)}, np.zeros_like(mass)
    for i in np.flatnonzero(mass):
        twin().move(found[i], early=early)
        edges, targets = twin()._moves[found[i], early]
        for p, target in zip(np.diff(edges, prepend=0.0), targets, strict=True):
            after[number[target]] += mass[i] * p
    return after


def test_what_may_happen_before_and_between_items_is_as_drawn():
    f, (_, at) = MarkFilter(network(), EXCERPT, everything(network()), span=SPAN), states()
    mass = np.eye(len(at))[0]
    for _ in range(twin().preroll):
        mass = moved(mass, early=True)
    np.testing.assert_allclose(f.belief[at], mass, rtol=0, atol=1e-13)
    for _ in range(3):
        f.advance(None)
        total = 0.0
        for p in np.diff(twin().gaps, prepend=0.0):
            total, mass = total + p * mass, moved(mass, early=False)
        mass = total / total.sum()
        np.testing.assert_allclose(f.belief[at], mass, rtol=0, atol=1e-13)


def test_every_line_has_the_declared_likelihood_in_every_state():
    """Against the empty slot, for 240 lines of drawn excerpts: new kinds, further entities, lines that name nobody."""
    excerpts, (found, at) = MarkFilter(network(), EXCERPT, everything(network())).excerpts, states()
    for _ in range(40):
        drawn, shown = twin().one(6), Shown()
        for item, before in zip(drawn.items, drawn.before, strict=True):
            patterns, logs = excerpts.ratios(item.mark, STEP, shown), np.empty(network().states)
            log_likelihoods(excerpts.plan, STEP, NO_CLASS, patterns, NO_SOFT, logs)
            laws = np.array([twin().line_law(state, twin().kinds.index(item.mark.kind), before) for state in found])
            told = laws[:, item.mark.entities[0]] if item.mark.entities else laws.sum(axis=1)
            np.testing.assert_allclose(logs[at], np.log(told / told[0]), rtol=0, atol=1e-10, err_msg=str(item.mark))


@pytest.mark.parametrize("seed", range(3))
def test_an_excerpt_of_whole_slices_equals_the_filter(seed):
    """With known gaps, values and no marks the two have the same law, memory of samples included."""
    net = reference("1x2", "incident").with_limits(LIMITS).hidden_network
    excerpt = MarkFilter(net, EXCERPT, everything(net))
    excerpt.reset(0, excerpt.onset)
    f = Filter(net, prior=OnsetPrior(np.tile(excerpt.onset, (len(PHASES), 1))))
    rng = np.random.default_rng(seed)
    for gap in (1, 2, 1, 3, 1):
        values = random_values(net, rng, "step", 0.2)
        excerpt.observe(Item(gap, None, values))
        for _ in range(gap - 1):
            f.step(SliceEvidence(np.full(net.width, math.nan)))
        f.step(SliceEvidence(values))
        np.testing.assert_allclose(excerpt.belief, f.belief[0], rtol=0, atol=1e-13)
