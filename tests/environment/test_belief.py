"""The belief is exact through moves, late cells and uneven nodes, and right in law."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from clusterorch.environment.believer import Believer, cells_of
from clusterorch.environment.moves import ISOLATE, REQUEUE, RESTART, ROLL_BACK, SWAP, Moves
from clusterorch.environment.outlook import look, new_outlook, places_of
from clusterorch.inference.actions import action_kernel
from clusterorch.inference.filtering import Filter, SliceEvidence
from clusterorch.inference.lateness import LateFilter
from clusterorch.inference.priors import OnsetPrior, stationary_prior, uniform_sites
from clusterorch.models.layout import Layout
from clusterorch.models.spec import STREAMS
from tests.environment.worlds import hot, play, record, world_of
from tests.inference.calibration import TrueStates, standard_errors
from tests.inference.worlds import Pair, as_states, assert_same, hot_network, walked_states
from tests.reference.walk import walk_filter

FOREVER = 1e7


@dataclass
class Told:
    """One slice of one instance, as published, with the slice in which each value arrives."""

    evidence: SliceEvidence
    arrival: np.ndarray  # [width], -1 never
    proneness: np.ndarray


def told(world, b: int) -> Told:
    """The newest slice of an instance, written down without the believer's help."""
    state, network, move = world.state, world.network, int(world.taken[b])
    name, target = world.moves.names[move]
    kernel = None if move == 0 else action_kernel(network, name, target)
    arrival = np.empty(network.width, dtype=int)
    for s, signal in enumerate(network.spec.signal):
        node = network.layout.node_of(signal.entity)
        for i, w in enumerate(range(network.signal_offset[s], network.signal_offset[s + 1])):
            collector = -1 if signal.family == "first_speaker" else node[i]
            arrival[w] = state.arrival[b, STREAMS.index(signal.stream), collector]
    evidence = SliceEvidence(
        state.values[b].copy(), int(state.phase[b]), bool(state.save_ends[b]), int(state.job_class[b]),
        int(state.age_before[b]), kernel,
    )  # fmt: skip
    return Told(evidence, arrival, state.proneness[b].copy())


def uneven(network, prior: OnsetPrior, proneness: np.ndarray) -> tuple[OnsetPrior, np.ndarray]:
    """Hazards site by site: those on a node are multiplied by its proneness."""
    onset, weights, start = prior.stationary.copy(), uniform_sites(network), 0
    for v, block in enumerate(network.blocks):
        node = network.layout.node_of(block.variant.spec.site)
        hazard = np.where(node >= 0, proneness[node], 1.0) / block.sites
        onset[:, v] *= hazard.sum()
        weights[start : start + block.sites] = hazard / hazard.sum()
        start += block.sites
    return OnsetPrior(onset), weights


def batch_posterior(world, history: list[Told]) -> np.ndarray:
    """The belief from scratch on what has arrived by the newest slice."""
    now, f = len(history) - 1, Filter(world.network, strict=False)
    for one in history:
        f.prior, f.weights = uneven(world.network, world.prior, one.proneness)
        arrived = (one.arrival >= 0) & (one.arrival <= now)
        f.step(replace(one.evidence, values=np.where(arrived, one.evidence.values, np.nan)))
    return f.belief[0]


@pytest.mark.parametrize("seed", range(4))
def test_the_belief_equals_the_late_filter_fed_with_the_same_cells(seed):
    world = world_of(hot(repair_seconds=FOREVER), seed=seed)
    believer = Believer(world.network, world.moves, world.prior)
    online = LateFilter(world.network, believer.lag, prior=world.prior, strict=False)
    history: list[Told] = []
    for now, _ in enumerate(play(world, 40, seed, busy=0.4)):
        record(believer, world)
        history.append(told(world, 0))
        here = np.where(history[now].arrival == now, history[now].evidence.values, np.nan)
        online.open_slice(replace(history[now].evidence, values=here))
        late = {t: np.where(history[t].arrival == now, history[t].evidence.values, np.nan) for t in range(now)}
        online.arrive_many({t: values for t, values in late.items() if not np.isnan(values).all()})
        np.testing.assert_allclose(believer.believe(np.array([0]))[0], online.posterior().vector, atol=1e-10)
    assert online.too_late == 0
    assert any((one.arrival > t).any() for t, one in enumerate(history))
    assert any(one.evidence.action for one in history)


@pytest.mark.parametrize(("layout", "seed"), [("1x2", 0), ("1x2", 1), ("2x2", 2), ("2x2", 4)])
def test_the_belief_equals_the_batch_posterior_over_uneven_nodes(layout, seed):
    world, slices = world_of(hot(layout, spares=1), batch=2, seed=seed), 40
    believer, histories = Believer(world.network, world.moves, world.prior, 2), [[], []]
    prone, least = set(), 0.0
    for _ in play(world, slices, seed, busy=0.5):
        record(believer, world)
        for b in range(2):
            histories[b].append(told(world, b))
            found = believer.believe(np.array([b]))[b]
            np.testing.assert_allclose(found, batch_posterior(world, histories[b]), atol=1e-10)
            prone |= set(world.state.proneness[b].tolist())
            least = max(least, 1.0 - found[0])
    assert prone >= ({0.0, 1.0, 5.0} if layout == "2x2" else {1.0, 5.0})
    assert least > 0.5


def test_every_kind_of_move_is_taken_in_these_worlds():
    world, taken = world_of(hot("2x2"), batch=32, seed=1), set()
    for _ in play(world, 60, seed=1, busy=0.5):
        taken |= set(world.moves.table.does[world.taken].tolist())
    assert taken == set(range(9))
    assert {ISOLATE, SWAP, ROLL_BACK, RESTART, REQUEUE} <= taken


class Moved(Pair):
    """A pair of evidences in which chosen actions are taken."""

    name = ""

    def _action(self) -> tuple[str, int]:
        return self.name, 0


@cache
def walked_network():
    return hot_network(Layout(1, 2, spares=1))


@pytest.mark.parametrize("name", ["move_to_spare", "isolate_node", "around_rail", "roll_back"])
@pytest.mark.parametrize("seed", range(2))
def test_the_belief_equals_the_walk(name, seed):
    network = walked_network()
    pair = type("Pair", (Moved,), {"name": name})(network, seed, 6, actions=True)
    moves, walked = Moves(network), walk_filter(network.spec, network.layout, pair.slices, pair.timers)
    believer = Believer(network, moves, stationary_prior(network))
    ones = np.ones((1, network.layout.nodes))
    for t, (one, reference) in enumerate(zip(pair.evidence, walked, strict=True)):
        move = 0 if one.action is None else moves.number(one.action.name, one.action.target)
        cells = np.full((1, len(STREAMS), network.layout.nodes + 1), t)
        numbers = (np.array([x]) for x in (one.phase, one.job_class, one.age_before, int(one.save_ends), move))
        believer.record(np.array([True]), one.values[None], cells, *numbers, ones, np.ones(1))
        found = as_states(network, believer.believe(np.array([0]))[0])
        assert_same(found, walked_states(network.spec, reference.posterior, hidden_age=False), 1e-10)
    assert [one.action is not None for one in pair.evidence] == [False, False, True, False, True, False]


def surprises(model, believed, *, episodes: int, slices: int = 14) -> tuple[np.ndarray, int]:
    """[episodes, 2] -log b(truth) less the entropy, and b(truth) less the sum of squares; truths thought impossible."""
    batch, rows, impossible, network = 250, [], 0, believed.network
    edges = [f"{e.from_}>{e.to}" for e in model.spec.edge]
    states = TrueStates(network, [m.name for m in model.spec.mechanism], edges)
    for seed in range(episodes // batch):
        world, off = world_of(model, batch, seed=seed), np.zeros((batch, 2))
        believer = Believer(network, Moves(network), world.prior, batch)
        for t, _ in enumerate(play(world, slices, seed, busy=0.25)):
            record(believer, world)
            if t + 1 in (slices // 2, slices):
                belief, truth = believer.believe(np.arange(batch)), states.of(world.state)
                own = np.where(truth >= 0, belief[np.arange(batch), truth], 0.0)
                impossible += int((own <= 0.0).sum())
                logs = np.log(np.maximum(belief, 1e-300))
                off[:, 0] += (belief * logs).sum(axis=1) - np.log(np.maximum(own, 1e-300))
                off[:, 1] += own - (belief**2).sum(axis=1)
        impossible += int(believer.set_aside.sum())
        rows.append(off)
    return np.concatenate(rows), impossible


@pytest.mark.parametrize(("layout", "episodes"), [("1x2", 3000), ("2x2", 1500)])
def test_the_belief_is_right_in_law_with_moves_taken(layout, episodes):
    found, impossible = surprises(hot(layout), hot(layout), episodes=episodes)
    assert impossible == 0
    assert standard_errors(found) < 4.9


def test_a_believer_who_trusts_spares_is_noticed():
    found, _ = surprises(hot("1x2", brings=0.95), hot("1x2", brings=0.0), episodes=3000)
    assert standard_errors(found) > 4.9


def test_cells_are_numbered_as_collectors_deliver_them():
    network = hot("2x2").network
    cells, collectors = cells_of(network), network.layout.nodes + 1
    for s, signal in enumerate(network.spec.signal):
        found = cells[network.slice_of(s)]
        assert set((found // collectors).tolist()) == {STREAMS.index(signal.stream)}
        hosted = signal.entity in ("gpu", "rank", "link", "node") and signal.family != "first_speaker"
        expected = network.layout.node_of(signal.entity) if hosted else np.full(len(found), network.layout.nodes)
        np.testing.assert_array_equal(found % collectors, expected[: len(found)])


def test_the_outlook_adds_up_what_is_believed():
    world = world_of(hot("2x2"), batch=4, seed=5)
    network, moves = world.network, world.moves
    believer = Believer(network, moves, world.prior, 4)
    for _ in play(world, 30, seed=5):
        record(believer, world)
    # A belief that knows little: what is believed of four instances, and of nobody in particular.
    rng, rows = np.random.default_rng(0), np.arange(4)
    belief = believer.believe(rows).copy()
    belief[3] = rng.dirichlet(np.ones(network.states))
    worth = rng.random(len(network.blocks))
    kernels = [action_kernel(network, *name) for name in moves.names]
    found, names = new_outlook(network, moves.count, 4), [mode.name for mode in network.spec.mode]
    look(believer.plan, moves.table, places_of(network), belief, rows, worth, found)
    for b in rows:
        variants, copies = np.zeros(len(network.blocks) + 1), np.zeros(network.layout.copies)
        nodes, (cures, gains) = np.zeros((network.layout.nodes, len(names))), np.zeros((2, moves.count))
        variants[0], start = belief[b, 0], 0
        for v, block in enumerate(network.blocks):
            mass = belief[b, block.offset : block.offset + block.size].reshape(block.shape())
            variants[v + 1] = mass.sum()
            for c, configuration in enumerate(block.chain.configurations):
                copies[: configuration.poisoned] += mass[:, c].sum()
                for m in range(moves.count if not block.variant.benign else 0):
                    if m > 0 and configuration.poisoned <= kernels[m].discards:
                        cured = mass[:, c].sum(axis=0) @ kernels[m].clears[start : start + block.sites]
                        cures[m] += cured
                        gains[m] += cured * worth[v]
            node = network.layout.node_of(block.variant.spec.site)
            if not block.variant.benign and node[0] >= 0:
                np.add.at(nodes[:, names.index(block.variant.mode)], node, mass.sum(axis=(0, 1)))
            start += block.sites
        for mine, theirs in zip(found, (variants, nodes, copies, cures, gains), strict=True):
            np.testing.assert_allclose(mine[b], theirs, atol=1e-6)
    assert found.copies[3].max() > 0.01
