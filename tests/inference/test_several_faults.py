"""Two fault slots, exactly: against the walk over pairs, against one slot, and with the slots changed over."""

from __future__ import annotations

import functools
from collections import defaultdict

import numpy as np
import pytest

from clusterorch.errors import ImpossibleEvidence
from clusterorch.inference.actions import action_kernel
from clusterorch.inference.filtering import Filter, SliceEvidence
from clusterorch.inference.priors import OnsetPrior, stationary_prior
from clusterorch.inference.several_faults import TwoSlotFilter
from clusterorch.models.compile import compile_network
from clusterorch.models.ground import limit_slices
from clusterorch.models.layout import Layout
from clusterorch.models.spec import PHASES, ModelSpec
from tests.inference import worlds
from tests.inference.worlds import Pair, assert_same, hot_network, hot_spec, random_values
from tests.reference.walk2 import walk_pairs

LAYOUT = Layout(1, 2)
SOON = {"transport": 15.0, "heartbeat": 30.0, "watchdog": 15.0}
FEW = {
    "hardware": {"gpu_xid": ["lost_from_bus"], "ib_link_flap": ["degraded_speed"]},
    "crashing": {"gpu_xid": ["engine_fault"], "stuck_collective": ["member_elsewhere"]},
    "software": {"stuck_collective": ["different_operation"], "nan_injection": ["bad_gradient"]},
    "healing": {"ib_link_flap": ["short_healed"], "nan_injection": ["overflow_forever", "bad_batch"]},
}


def few_variants(which: str) -> ModelSpec:
    """The hot model with few variants, and one disturbance."""
    raw = hot_spec().model_dump(by_alias=True, exclude_none=True)
    kept = FEW[which]
    raw["mode"] = [mode for mode in raw["mode"] if mode["name"] in kept]
    for mode in raw["mode"]:
        mode["variant"] = [v for v in mode["variant"] if v["name"] in kept[mode["name"]]]
        for variant in mode["variant"]:
            variant["share"] = 1.0 / len(mode["variant"])
    raw["benign"] = [benign for benign in raw["benign"] if benign["name"] == "scale_search"]
    variants = {f"{m['name']}.{v['name']}" for m in raw["mode"] for v in m["variant"]} | {"healthy.scale_search"}
    raw["edge"] = [edge for edge in raw["edge"] if "." not in edge["from"] or edge["from"] in variants]
    for timer in raw["timer"]:
        timer["seconds"] = SOON[timer["name"]]
    # The model has no rule that asks for an absence.
    rule = {"mechanism": "crash_reported", "absent_mechanisms": ["engine_faulted"], "probability": 0.2}
    next(signal for signal in raw["signal"] if signal["name"] == "closing")["when"].insert(0, rule)
    return ModelSpec.model_validate(raw)


def sparse_values(network, rng, phase, missing):
    """Few values, so that no hypothesis is ruled out, but those about all members at once always."""
    values = random_values(network, rng, phase, 0.9)
    for s, signal in enumerate(network.spec.signal):
        at = network.slice_of(s)
        if signal.family == "chorus":
            values[at] = rng.random(at.stop - at.start) < 0.5
        elif signal.family == "first_speaker":
            values[at] = rng.integers(-1, network.layout.count(signal.entity))
        elif signal.name in ("closing", "step_time"):
            values[at] = 1.0
    return values


@functools.cache
def small(which: str):
    return compile_network(few_variants(which), LAYOUT)


@functools.cache
def whole():
    return hot_network(LAYOUT)


def second_prior(network) -> OnsetPrior:
    """Another law of starting than that of the first slot."""
    shares = np.linspace(0.3, 1.0, network.onset.shape[1])
    return OnsetPrior(network.onset * shares)


def as_declared(network, belief_pairs: np.ndarray) -> dict[tuple, float]:
    """A belief over pairs, keyed by what the states of both slots declare."""
    names: list[tuple] = [("none",)] + [()] * (network.states - 1)
    for block in network.blocks:
        law = block.chain.law
        for level, severity in enumerate(block.variant.severity_levels):
            for c, configuration in enumerate(block.chain.configurations):
                active = frozenset(m.name for i, m in enumerate(law.mechanisms) if configuration.bits >> i & 1)
                stages = frozenset((e.name, s) for e, s in zip(law.edges, configuration.stages, strict=True) if s)
                at = block.offset + (level * block.shape()[1] + c) * block.sites
                for site in range(block.sites):
                    names[at + site] = (block.variant.name, severity, site, active, stages, configuration.poisoned)
    found: dict[tuple, float] = defaultdict(float)
    for i, j in zip(*np.nonzero(belief_pairs), strict=True):
        found[names[i], names[j]] += float(belief_pairs[i, j])
    return found


def walked(spec: ModelSpec, posterior) -> dict[tuple, float]:
    edges = [f"{edge.from_}>{edge.to}" for edge in spec.edge]

    def name(state) -> tuple:
        if state.slot is None:
            return ("none",)
        mode, variant, severity, site = state.slot
        stages = frozenset((n, s) for n, s in zip(edges, state.stages, strict=True) if s)
        return (f"{mode}.{variant}", severity, site, state.active, stages, state.poisoned)

    found: dict[tuple, float] = defaultdict(float)
    for (one, other), p in posterior.items():
        found[name(one), name(other)] += p
    return found


def onsets_of(network, prior: OnsetPrior, evidence: list[SliceEvidence]):
    roots = [tuple(b.variant.name.split(".")) for b in network.blocks]
    return [dict(zip(roots, prior.onset(t, one.phase).tolist(), strict=True)) for t, one in enumerate(evidence)]


@pytest.mark.parametrize("which", FEW)
@pytest.mark.parametrize(
    ("seed", "classes", "actions", "sparse"),
    [(0, True, False, False), (1, False, False, True), (2, False, True, True), (3, False, True, True)],
)
def test_it_equals_the_walk_over_pairs(which, seed, classes, actions, sparse, monkeypatch):
    net = small(which)
    monkeypatch.setattr(worlds, "random_values", sparse_values if sparse else random_values)
    pair = Pair(net, seed, 3, classes=classes, actions=actions)
    timers = limit_slices(net.spec)
    second = second_prior(net)
    onsets = tuple(onsets_of(net, prior, pair.evidence) for prior in (stationary_prior(net), second))
    f = TwoSlotFilter(net, second)
    for one, (posterior, log_evidence) in zip(
        pair.evidence, walk_pairs(net.spec, LAYOUT, pair.slices, timers, onsets), strict=True
    ):
        mine = f.step(one)
        assert_same(as_declared(net, f.matrix), walked(net.spec, posterior), 1e-12)
        assert mine == pytest.approx(log_evidence, rel=1e-12, abs=1e-10)


@pytest.mark.parametrize(("seed", "actions"), [(0, False), (1, False), (2, True)])
def test_with_a_second_slot_that_never_starts_it_is_the_filter_of_one_fault(seed, actions):
    net = whole()
    never = OnsetPrior(np.zeros_like(net.onset))
    one, two = Filter(net), TwoSlotFilter(net, never)
    pairs = (Pair(net, number, 6, actions=actions) for number in range(seed, seed + 20))
    # A spare that is sick would start something in either slot.
    pair = next(p for p in pairs if not any(e.action and e.action.brought.any() for e in p.evidence))
    assert any(e.action for e in pair.evidence) == actions
    for evidence in pair.evidence:
        expected = one.step(evidence)[0]
        assert two.step(evidence) == pytest.approx(expected, rel=1e-12, abs=1e-10)
        np.testing.assert_allclose(two.matrix[:, 0], one.belief[0], rtol=0, atol=1e-12)
    belief = two.posterior()
    assert belief.both == pytest.approx(0.0, abs=1e-12)
    assert belief.modes == pytest.approx(one.posterior().modes, abs=1e-12)
    assert belief.slot(1).empty == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("seed", [3, 4])
def test_slots_change_places_with_their_priors(seed):
    net = whole()
    first, second = stationary_prior(net), second_prior(net)
    one, other = TwoSlotFilter(net, second, prior=first), TwoSlotFilter(net, first, prior=second)
    for evidence in Pair(net, seed, 4).evidence:
        assert one.step(evidence) == pytest.approx(other.step(evidence), rel=1e-12)
        np.testing.assert_allclose(one.matrix, other.matrix.T, rtol=0, atol=1e-13)
    assert one.posterior().modes == pytest.approx(other.posterior().modes, abs=1e-12)


def test_two_faults_that_both_show_are_both_found():
    net = whole()
    f = TwoSlotFilter(net, stationary_prior(net))
    values = np.full(net.width, np.nan)
    step = PHASES.index("step")
    # GPU 0 falls off a bus that reports no errors, in the slice in which a check names rank 1.
    shown = {"xid": [1, 0], "bus_lost_text": [1, 0], "aer_corrected": [0, 0], "aer_uncorrected": [0, 0]}
    for name, seen in (shown | {"nan_named": [0, 1]}).items():
        values[net.slice_of(net.signal_index(name))] = seen
    for _ in range(3):
        f.step(SliceEvidence(np.full(net.width, np.nan), step))
    f.step(SliceEvidence(values, step))
    belief = f.posterior()
    assert belief.both > 0.9
    assert belief.modes["gpu_xid"] > 0.9
    assert belief.modes["nan_injection"] > 0.9
    both = belief.slot(0).sites(), belief.slot(1).sites()
    assert sum(sites["gpu", 0] for sites in both) > 0.9
    assert sum(sites["rank", 1] for sites in both) > 0.9


def test_marginals_are_distributions_and_say_what_the_pairs_say():
    net = whole()
    f = TwoSlotFilter(net, second_prior(net))
    for evidence in Pair(net, 5, 3).evidence:
        f.step(evidence)
    belief = f.posterior()
    for slot in range(2):
        assert sum(belief.slot(slot).modes.values()) == pytest.approx(1.0, abs=1e-12)
    for mode in (m.name for m in net.spec.mode):
        one, other = (belief.slot(k).modes[mode] for k in range(2))
        assert max(one, other) - 1e-12 <= belief.modes[mode] <= one + other + 1e-12
    assert belief.modes["healthy"] >= belief.empty


def test_without_evidence_the_slots_are_independent():
    net = whole()
    second = second_prior(net)
    two, one, other = TwoSlotFilter(net, second), Filter(net), Filter(net, prior=second)
    silent = SliceEvidence(np.full(net.width, np.nan))
    for f in (two, one, other):
        for _ in range(3):
            f.step(silent)
    np.testing.assert_allclose(two.matrix, np.outer(one.belief[0], other.belief[0]), rtol=0, atol=1e-15)
    p, q, both = one.posterior().modes, other.posterior().modes, two.posterior().modes
    assert both["healthy"] == pytest.approx(p["healthy"] * q["healthy"], abs=1e-12)
    assert both["healthy"] > two.posterior().empty + 0.01
    assert both["gpu_xid"] == pytest.approx(1.0 - (1.0 - p["gpu_xid"]) * (1.0 - q["gpu_xid"]), abs=1e-12)


def test_the_worse_class_of_the_two_is_the_job_s():
    net = whole()
    f = TwoSlotFilter(net, second_prior(net))
    silent = np.full(net.width, np.nan)
    for job_class, age in ((0, 0), (1, 0), (2, 1)):
        f.step(SliceEvidence(silent, PHASES.index("step"), job_class=job_class, age_before=age))
        own = np.zeros(net.states, dtype=int)
        for block in net.blocks:
            classes = np.tile(np.repeat(block.classes[:, PHASES.index("step")], block.sites), block.levels)
            own[block.offset : block.offset + block.size] = classes
        rows, columns = np.nonzero(f.matrix)
        assert set(np.maximum(own[rows], own[columns])) == {job_class}


def test_what_cannot_be_is_refused():
    net = whole()
    f = TwoSlotFilter(net, OnsetPrior(np.zeros_like(net.onset)), prior=OnsetPrior(np.zeros_like(net.onset)))
    silent = np.full(net.width, np.nan)
    with pytest.raises(ImpossibleEvidence):
        f.step(SliceEvidence(silent, job_class=2))
    with pytest.raises(ValueError, match="soft"):
        f.step(SliceEvidence(silent, soft=np.zeros(net.states)))
    with pytest.raises(ValueError, match="hidden_age"):
        TwoSlotFilter(hot_network(LAYOUT, hidden_age=True), stationary_prior(net))
    with pytest.raises(ValueError, match="states"):
        TwoSlotFilter(hot_network(Layout(8, 8)), stationary_prior(net))


@pytest.mark.parametrize(("name", "target"), [("around_rail", 0), ("isolate_node", 0), ("roll_back", 1)])
def test_an_action_is_taken_on_both_slots(name, target):
    net = whole()
    two, one, other = TwoSlotFilter(net, second_prior(net)), Filter(net), Filter(net, prior=second_prior(net))
    silent = np.full(net.width, np.nan)
    kernel = action_kernel(net, name, target)
    phase = PHASES.index("launch" if kernel.restarts else "step")
    for evidence in (SliceEvidence(silent), SliceEvidence(silent, phase, action=kernel), SliceEvidence(silent, phase)):
        for f in (two, one, other):
            f.step(evidence)
    np.testing.assert_allclose(two.matrix, np.outer(one.belief[0], other.belief[0]), rtol=0, atol=1e-15)
