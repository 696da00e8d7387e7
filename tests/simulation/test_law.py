"""The kernel draws what the enumerated law says.  Thresholds are 4.9 standard errors: 1e-6 a comparison."""

from collections import defaultdict

import numpy as np
import pytest

from clusterorch.causal.slices import (
    DOWN,
    FAST,
    HALTED,
    RECURRENT,
    TIMER,
    Configuration,
    job_class,
    successors,
)
from clusterorch.models.configurations import make_context
from clusterorch.models.spec import PHASES
from clusterorch.simulation import Simulator
from clusterorch.simulation.plan import active
from tests.simulation.worlds import each_mode, quick, run, twisted, variants, world

BATCH, ERRORS = 10_000, 4.9
STEP, SAVE, STOP = PHASES.index("step"), PHASES.index("save"), PHASES.index("stop")
NEXT = {"launch": "init_comm", "init_comm": "load", "load": "step", "step": "save", "save": "step"}


def agrees(count, total, p):
    return abs(count - total * p) <= ERRORS * np.sqrt(total * p * (1 - p)) + 1e-9


def schedule(plan, phase, clock, before):
    """The published machine, said again."""
    if before == DOWN:
        return STOP, 0
    if before == HALTED:
        return phase, clock
    if clock + 1 < plan.duration[phase]:
        return phase, clock + 1
    return PHASES.index(NEXT[PHASES[phase]]), 0


def first_phase(block):
    """A phase in which the variant may start."""
    return (block.variant.spec.phases or ["step"])[0]


def exact(model, block, slices):
    """Law of (bits, stages, poisoned), or None for an empty slot, after some slices from the entry on."""
    law, plan = block.chain.law, Simulator(model).plan
    lasting = law.mask("stall", "crash", "block_save", "block_start")
    start = (Configuration(0, (0,) * len(law.edges)), PHASES.index(first_phase(block)), -1, 0, 0)
    joint = {start: 1.0}
    for t in range(slices):
        after = defaultdict(float)
        for (before, phase, clock, kind, age), p in joint.items():
            if before is None:
                after[None, 0, 0, 0, 0] += p
                continue
            phase, clock = schedule(plan, phase, clock, kind)
            ends = block.variant.recovers if t and not before.bits & lasting else 0.0
            if ends:
                after[None, 0, 0, 0, 0] += p * ends
            due = sum(age >= limit for limit in model.network.limits)
            context = make_context(phase, due, phase == SAVE and clock == plan.duration[SAVE] - 1)
            for now, q in successors(law, before, context, starts=t == 0).items():
                kind_now = job_class(law, now.bits, context)
                after[now, phase, clock, kind_now, age + 1 if kind_now == HALTED else 0] += p * (1 - ends) * q
        joint = after
    marginal = defaultdict(float)
    for (now, *_), p in joint.items():
        marginal[now] += p
    return marginal


def counted(model, block, state):
    """How many instances are in each configuration, in the numbers of the variant."""
    names = [m.name for m in model.spec.mechanism]
    edges = [f"{e.from_}>{e.to}" for e in model.spec.edge]
    law = block.chain.law
    columns = (state.variant[:, None], state.bits, state.poisoned[:, None], state.stage)
    rows, counts = np.unique(np.concatenate(columns, axis=1), axis=0, return_counts=True)
    found = defaultdict(int)
    for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
        words = np.array(row[1:3])
        bits = sum(int(active(words, names.index(m.name))) << i for i, m in enumerate(law.mechanisms))
        stages = tuple(row[4 + edges.index(e.name)] for e in law.edges)
        found[Configuration(bits, stages, row[3]) if row[0] >= 0 else None] += count
    return found


def compare(model, name, slices):
    """The state of a batch against the exact law, configuration by configuration."""
    block = next(b for b in model.network.blocks if b.variant.name == name)
    onset = np.zeros_like(model.network.onset)
    simulator = Simulator(model, BATCH, seed=11, fault=name, at=0, onset=onset, start=first_phase(block))
    run(simulator, slices)
    counts, law = counted(model, block, simulator.state), exact(model, block, slices)
    assert counts.keys() <= law.keys()
    rare = [c for c, p in law.items() if p * BATCH < 25]
    for configuration, p in law.items():
        if configuration not in rare:
            assert agrees(counts[configuration], BATCH, p), (configuration, counts[configuration], BATCH * p)
    rest = sum(law[c] for c in rare)
    assert agrees(sum(counts[c] for c in rare), BATCH, rest) or rest * BATCH < 25


@pytest.mark.parametrize("name", each_mode())
@pytest.mark.parametrize("slices", [1, 12])
def test_configurations_follow_the_enumerated_law(name, slices):
    compare(quick(), name, slices)


@pytest.mark.parametrize("name", each_mode())
def test_so_they_do_where_edges_have_stages_and_phases(name):
    compare(twisted(), name, 8)


def histories(name, slices=45):
    model = world("1x1")
    block = next(b for b in model.network.blocks if b.variant.name == name)
    onset = np.zeros_like(model.network.onset)
    simulator = Simulator(model, BATCH, seed=3, fault=name, at=0, onset=onset, start=first_phase(block))
    kept = run(
        simulator, slices, "bits", "bits_before", "stage", "arrived", "variant", "entered", "age_before", "phase"
    )
    return model, simulator.plan, {k: np.array(v) for k, v in kept.items()}


@pytest.mark.long
@pytest.mark.parametrize("name", variants())
def test_gates_delays_timers_and_heals_are_those_declared(name):
    model, plan, seen = histories(name)
    v = model.variants.index(name)
    held = seen["variant"] == v
    stage_before = np.concatenate([np.zeros_like(seen["stage"][:1]), seen["stage"][:-1]])
    tested = 0
    for e in range(len(plan.parent)):
        child, parent = plan.child[e], plan.parent[e]
        if plan.transient[child]:
            continue
        idle = held & (active(seen["bits_before"], child) == 0)
        if parent >= 0:
            was, now = active(seen["bits_before"], parent) == 1, active(seen["bits"], parent) == 1
        else:
            now = held & (parent == -1 - v)
            was = now & (seen["entered"] == 0)
        starts, arrived = idle & now & ~was, seen["arrived"][:, :, e] == 1
        child_on = active(seen["bits"], child) == 1
        if plan.kind[e] == FAST:
            assert agrees(arrived[starts].sum(), starts.sum(), plan.gate[e])
            tested += starts.any()
            continue
        if plan.kind[e] == RECURRENT:
            tried = idle & now & was
            assert agrees(arrived[tried].sum(), tried.sum(), plan.advance[e])
            tested += tried.any()
            continue
        opened = starts & ~child_on
        assert agrees((seen["stage"][:, :, e] == 1)[opened].sum(), opened.sum(), plan.gate[e])
        pending = idle & now & was & (stage_before[:, :, e] > 0)
        if plan.kind[e] == TIMER:
            np.testing.assert_array_equal(arrived[pending], (seen["age_before"] >= plan.limit[e])[pending])
        elif plan.stages[e] == 1:
            assert agrees(arrived[pending].sum(), pending.sum(), plan.advance[e])
        tested += pending.any()
    for m in range(len(plan.heals)):
        was, stays = held & (active(seen["bits_before"], m) == 1), active(seen["bits"], m) == 1
        if not plan.transient[m] and was.any():
            assert agrees((~stays)[was].sum(), was.sum(), plan.heals[m])
    assert tested


def test_a_geometric_delay_has_the_mean_declared():
    model = quick()
    delayed = [e for e in model.spec.edge if e.delay.geometric and not e.recurrent and e.gate == 1 and "." in e.from_]
    edge = sorted(delayed, key=lambda e: e.delay.geometric)[1]
    simulator = Simulator(model, BATCH, seed=8, fault=edge.from_, at=0, onset=np.zeros_like(model.network.onset))
    mechanism = [m.name for m in model.spec.mechanism].index(edge.to)
    mean = edge.delay.geometric / model.spec.model.slice_seconds
    slices = int(12 * mean)
    first = np.full(BATCH, slices)
    for t in range(slices):
        simulator.step()
        on = active(simulator.state.bits, mechanism) == 1
        first[on & (first == slices)] = t
    spread = np.sqrt(1 - 1 / mean) * mean
    assert abs(first.mean() - mean) < ERRORS * spread / np.sqrt(BATCH) + 1e-3


def test_faults_start_at_the_rates_sites_and_severities_declared():
    model = world("2x2")
    network = model.network
    onset = np.zeros_like(network.onset)
    onset[STEP] = np.linspace(0.01, 0.02, len(network.blocks))
    batch = 40_000
    simulator = Simulator(model, batch, seed=1, onset=onset)
    simulator.step()
    variant = simulator.state.variant
    assert agrees((variant < 0).sum(), batch, 1 - onset[STEP].sum())
    for v, block in enumerate(network.blocks):
        mine = variant == v
        assert agrees(mine.sum(), batch, onset[STEP, v])
        for site in range(block.sites):
            assert agrees((simulator.state.site[mine] == site).sum(), mine.sum(), 1 / block.sites)
        for level, p in zip(block.variant.severity_levels, block.variant.severities, strict=True):
            assert agrees((simulator.state.severity[mine] == level).sum(), mine.sum(), p)


def test_nothing_starts_where_the_onset_is_zero_and_the_declared_hazard_is_read_from_the_network():
    model = world("2x2")
    quiet = Simulator(model, 100, onset=np.zeros_like(model.network.onset))
    run(quiet, 50)
    assert (quiet.state.variant < 0).all()
    np.testing.assert_array_equal(Simulator(model)._cumulated(0), np.cumsum(model.network.onset, axis=1))


def test_an_onset_by_slice_is_asked_for_every_slice():
    model = world("2x2")

    class Late:
        def onset(self, t, phase):
            shares = np.zeros(len(model.network.blocks))
            shares[2] = 1.0 if t == 7 else 0.0
            return shares

    simulator = Simulator(model, 5, onset=Late())
    variant = np.array(run(simulator, 9, "variant")["variant"])
    assert (variant[:7] == -1).all()
    assert (variant[7] == 2).all()


def test_a_benign_disturbance_ends_at_its_hazard():
    model = quick()
    name = next(
        b.variant.name for b in model.network.blocks if b.variant.recovers > 0 and not b.chain.law.mask("stall")
    )
    recovers = next(b.variant.recovers for b in model.network.blocks if b.variant.name == name)
    simulator = Simulator(model, BATCH, fault=name, at=0, onset=np.zeros_like(model.network.onset))
    run(simulator, 2)
    assert agrees((simulator.state.variant < 0).sum(), BATCH, recovers)
    gone = simulator.state.variant < 0
    assert (simulator.state.bits[gone] == 0).all()
