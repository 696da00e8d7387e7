"""The excerpt filter against its twin, state by state: what passes between items, and what each line says."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from scipy import sparse

from clusterorch.inference.backward import log_likelihoods
from clusterorch.inference.excerpts import Shown
from clusterorch.inference.filtering import NO_SOFT, Filter, SliceEvidence
from clusterorch.inference.marks import Item, MarkFilter
from clusterorch.inference.priors import STEP, OnsetPrior
from clusterorch.inference.transition import NO_CLASS
from clusterorch.models.compile import Network
from clusterorch.models.spec import PHASES
from tests.inference.episodes import EXCERPT, SPAN, everything, excerpt_world, made, reference
from tests.inference.excerpt_twin import History, Job, Phase, Twin, state_key, state_numbers
from tests.inference.worlds import LIMITS, random_values

TOLD: tuple[tuple[Phase, ...], ...] = ((None, None, None), ("launch", "init_comm", "step"), ("save", "stop"))


@cache
def network(layout: str = "1x2") -> Network:
    return excerpt_world(layout=layout).hidden_network


@cache
def twin(layout: str = "1x2") -> Twin:
    return Twin(network(layout), LIMITS, EXCERPT, SPAN, seed=21, again=0.3)


@cache
def jobs() -> tuple[list[Job], np.ndarray]:
    """All jobs that can be reached in some phase, and the numbers of their states in the network."""
    numbers = state_numbers(network())
    found = twin().reachable(*dict.fromkeys(phase for told in TOLD for phase in told))
    return found, np.array([numbers[state_key(twin(), job.state)] for job in found])


@cache
def moves(phase: Phase) -> sparse.csr_array:
    """[jobs after, jobs before] probability, by the twin's draws, of each a slice later."""
    found, _ = jobs()
    number, rows = {job: i for i, job in enumerate(found)}, []
    for i, job in enumerate(found):
        twin().move(job, phase, early=False)
        edges, targets = twin()._moves[job, False, phase]
        rows += [(i, number[target], p) for target, p in zip(targets, np.diff(edges, prepend=0.0), strict=True)]
    before, after, p = zip(*rows, strict=True)
    return sparse.csr_array((p, (after, before)), shape=(len(found), len(found)))


def prepared(phase: Phase) -> np.ndarray:
    """[jobs] the distribution before the first line."""
    found, _ = jobs()
    number, mass = {job: i for i, job in enumerate(found)}, np.eye(len(found))[0]
    for _ in range(twin().preroll):
        after = np.zeros_like(mass)
        for i in np.flatnonzero(mass):
            twin().move(found[i], phase, early=True)
            edges, targets = twin()._moves[found[i], True, phase]
            np.add.at(after, [number[job] for job in targets], mass[i] * np.diff(edges, prepend=0.0))
        mass = after
    return mass


def passed(mass: np.ndarray, phase: Phase) -> np.ndarray:
    """[jobs] after an unknown gap."""
    total = 0.0
    for p in np.diff(twin().gaps, prepend=0.0):
        total, mass = total + p * mass, moves(phase) @ mass
    return total / total.sum()


def told_by(item: Item, before: History, phase: Phase, who: Twin, found: list[Job]) -> np.ndarray:
    """[jobs] probability of a line."""
    k, known = who.kinds.index(item.mark.kind), {}
    for job in found:
        state = who.shown(job)
        if (state.slot, state.active) not in known:
            law = who.line_law(state, k, before, phase)
            known[state.slot, state.active] = law[item.mark.entities[0]] if item.mark.entities else law.sum()
    return np.array([known[state.slot, state.active] for state in map(who.shown, found)])


def assert_is(f: MarkFilter, mass: np.ndarray) -> None:
    """Of faults that are over and of those that are not."""
    found, at = jobs()
    over = np.array([job.over for job in found])
    for mine, part in ((f.belief, ~over), (f.over, over)):
        expected = np.zeros(network().states)
        np.add.at(expected, at[part], mass[part])
        np.testing.assert_allclose(mine, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("told", TOLD, ids=str)
def test_an_excerpt_is_filtered_as_it_is_drawn(told):
    """What was before the first line, what passes, restarts that nobody logged, and what every line says."""
    f = MarkFilter(network(), EXCERPT, everything(network()), span=SPAN)
    found, _ = jobs()
    drawn, mass = twin().one(told), prepared(told[0])
    for item, phase, before in zip(drawn.items, told, drawn.before, strict=True):
        mass = passed(mass, phase)
        likelihood = told_by(item, before, phase, twin(), found)
        ratio = f.observe(item)
        assert ratio == pytest.approx(math.log(mass @ likelihood / likelihood[0]), abs=1e-10)
        mass = mass * likelihood / (mass @ likelihood)
        assert_is(f, mass)
    if told[0] is None:
        assert f.over.sum() > 1e-4


def test_a_gap_between_two_whole_ones_is_either():
    f = MarkFilter(network(), EXCERPT, everything(network()), span=SPAN)
    mass, step = prepared("step"), moves("step")
    f.advance(2.3, STEP)
    assert_is(f, 0.7 * (step @ step @ mass) + 0.3 * (step @ step @ step @ mass))


@pytest.mark.parametrize("phase", [None, "launch"])
def test_every_line_has_the_declared_likelihood_in_every_state(phase):
    """Against the empty slot, for 120 lines of drawn excerpts: new kinds, further entities, lines that name nobody."""
    net, who = network("2x2"), twin("2x2")
    excerpts, numbers = MarkFilter(net, EXCERPT, everything(net)).excerpts, state_numbers(net)
    found = [job for job in who.reachable(phase) if not job.over]
    at, number = [numbers[state_key(who, job.state)] for job in found], STEP if phase is None else PHASES.index(phase)
    for _ in range(20):
        drawn, shown = who.one([phase] * 6), Shown()
        for item, before in zip(drawn.items, drawn.before, strict=True):
            patterns, logs = excerpts.ratios(item.mark, number, shown), np.empty(net.states)
            log_likelihoods(excerpts.plan, number, NO_CLASS, patterns, NO_SOFT, logs)
            told = told_by(item, before, phase, who, found)
            np.testing.assert_allclose(logs[at], np.log(told / told[0]), rtol=0, atol=1e-10, err_msg=str(item.mark))


@pytest.mark.parametrize("seed", range(3))
def test_an_excerpt_of_whole_slices_equals_the_filter(seed):
    """With known gaps, values and no marks the two have the same law, memory of samples included."""
    base = reference("1x2", "incident")
    net = made(base, base.raw | {"prior": base.raw["prior"] | {"restart_seconds": None}}, LIMITS).hidden_network
    at_once = EXCERPT.model_copy(update={"before_first_line": 0.0})
    excerpt = MarkFilter(net, at_once, everything(net))
    f = Filter(net, prior=OnsetPrior(np.tile(excerpt.onset, (len(PHASES), 1))))
    rng = np.random.default_rng(seed)
    for gap in (1, 2, 1, 3, 1):
        values = random_values(net, rng, "step", 0.2)
        excerpt.observe(Item(gap, None, values, None))
        for _ in range(gap - 1):
            f.step(SliceEvidence(np.full(net.width, math.nan)))
        f.step(SliceEvidence(values))
        np.testing.assert_allclose(excerpt.belief, f.belief[0], rtol=0, atol=1e-13)
