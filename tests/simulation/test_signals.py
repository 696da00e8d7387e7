"""Values follow the rows that the model declares.  Thresholds are 4.9 standard errors."""

import numpy as np
import pytest
from scipy import stats

from clusterorch.causal.slices import MOVING
from clusterorch.models.layout import ENTITY_KINDS, Layout
from clusterorch.models.spec import PHASES, STREAMS
from clusterorch.probability.elementary import normal_quantile
from clusterorch.probability.families import gaussian_draw
from clusterorch.probability.noise import telemetry_uniform
from clusterorch.simulation import Simulator
from clusterorch.simulation.channels import KIND_SHIFT
from clusterorch.simulation.draws import central_quantile, draw_continuous
from clusterorch.simulation.signals import _spans
from tests.reference.emissions import World, parameters, relation
from tests.simulation.worlds import changed, run, world

BATCH, ERRORS = 10_000, 4.9
DISCRETE = ("presence", "count", "categorical")


def agrees(count, total, p):
    """Two-sided binomial test at the level of 4.9 standard errors; exact, for rare classes too."""
    tail = stats.norm.sf(ERRORS)
    return min(stats.binom.cdf(count, total, p), stats.binom.sf(count - 1, total, p)) > tail


def reach(model):
    """For each lasting mechanism: a variant that can bring it about."""
    found = {}
    for block in model.network.blocks:
        for mechanism in (*block.chain.law.mechanisms, *block.chain.law.transients):
            found.setdefault(mechanism.name, block.variant.name)
    return found


def check_signal(model, signal, world_, values):
    for entity in range(values.shape[1]):
        stands = relation(model.layout, world_.site_kind, world_.site, signal.entity, entity)
        chosen = parameters(signal, world_, stands)
        sample = values[:, entity][~np.isnan(values[:, entity])]
        where = f"{signal.name}[{entity}] {stands} {sorted(world_.active)}"
        if signal.family in DISCRETE:
            own = table(signal, chosen, world_.severity)
            rest = table(signal, parameters(signal, empty(model), "rest"), 1)
            share = signal.contamination
            for value, p in enumerate((1 - share) * own + share * rest):
                assert agrees((sample == value).sum(), len(sample), p), f"{where}={value}"
        else:
            check_continuous(signal, chosen, sample, where)


def table(signal, chosen, severity):
    if signal.family == "presence":
        p = chosen["probability"]
        return np.array([1 - p, p])
    return np.array(chosen["probabilities"], dtype=float)


def empty(model, phase="step"):
    return World(model.layout, phase, "moving", frozenset(), None, 0, 1)


def check_continuous(signal, chosen, sample, where):
    absent, o = chosen["absent"] or 0.0, signal.outlier
    assert agrees(np.isinf(sample).sum(), len(sample), absent), where
    x = sample[np.isfinite(sample)]
    if len(x) < 200:
        return
    mean = (1 - o.probability) * chosen["mean"] + o.probability * o.mean
    variance = (1 - o.probability) * (chosen["sd"] ** 2 + (chosen["mean"] - mean) ** 2)
    variance += o.probability * (o.sd**2 + (o.mean - mean) ** 2)
    assert abs(x.mean() - mean) < ERRORS * np.sqrt(variance / len(x)), where
    inside = np.abs(x - chosen["mean"]) < chosen["sd"]
    regular = 0.6826894921370859
    assert abs(inside.mean() - regular) < ERRORS * np.sqrt(0.22 / len(x)) + o.probability, where


@pytest.mark.parametrize("mechanism", [None, *reach(world())])
def test_marginals_are_those_of_the_row(mechanism):
    model = world()
    if mechanism is None:
        simulator, fault = Simulator(model, BATCH, seed=6, onset=0 * model.network.onset), None
    else:
        fault = reach(model)[mechanism]
        variant = next(b for b in model.network.blocks if b.variant.name == fault)
        site = min(1, variant.sites - 1)
        every = [f"{m.name}={int(m.name == mechanism)}" for m in model.spec.mechanism]
        simulator = Simulator(
            model, BATCH, seed=6, fault=f"{fault}/{site}/2" if variant.levels > 1 else f"{fault}/{site}", at=0, do=every
        )
    record = simulator.step()
    job_class = ("moving", "halted", "down")[record.job_class[0]]
    if fault is None:
        now = empty(model)
    else:
        severity = 2 if variant.levels > 1 else 1
        now = World(model.layout, "step", job_class, frozenset([mechanism]), variant.variant.spec.site, site, severity)
    for s, signal in enumerate(model.spec.signal):
        values = record.values[:, model.network.slice_of(s)]
        if signal.family in ("chorus", "first_speaker"):
            check_members(model, signal, now, values)
        else:
            check_signal(model, signal, now, values)


def check_members(model, signal, now, values):
    chosen = parameters(signal, now, None)
    members = range(model.layout.count(signal.entity))
    stands = [relation(model.layout, now.site_kind, now.site, signal.entity, m) for m in members]
    if signal.family == "first_speaker":
        x = values[:, 0][~np.isnan(values[:, 0])]
        weight = np.array([getattr(chosen["weight"], s) for s in stands])
        assert agrees((x == -1).sum(), len(x), 1 - chosen["speaks"])
        for m in members:
            assert agrees((x == m).sum(), len(x), chosen["speaks"] * weight[m] / weight.sum())
        return
    whole = values[~np.isnan(values).any(axis=1)]
    for m in members:
        p = chosen["told"] * getattr(chosen["speak"], stands[m]) + (1 - chosen["told"]) * chosen["quiet"]
        assert agrees(whole[:, m].sum(), len(whole), p), (signal.name, m)
    none = chosen["told"] * np.prod([1 - getattr(chosen["speak"], s) for s in stands])
    none += (1 - chosen["told"]) * (1 - chosen["quiet"]) ** len(stands)
    assert agrees((whole.sum(axis=1) == 0).sum(), len(whole), none), signal.name


def calm(absent=0.0):
    """The reference model with no outliers, certain delivery, and this share of cells without a value."""
    model = world("1x1")
    plain = [
        s.model_copy(update={"outlier": s.outlier.model_copy(update={"probability": 0.0}), "absent": absent})
        if s.outlier else s
        for s in model.spec.signal
    ]  # fmt: skip
    return changed(model, signal=plain)


def sampled(model, slices=60, lost=0.0):
    streams = [s.model_copy(update={"lost": lost}) for s in model.spec.stream]
    model = changed(model, stream=streams)
    simulator = Simulator(model, 2000, seed=2, onset=0 * model.network.onset)
    return model, np.array(run(simulator, slices, "values")["values"])


def test_samples_remember_the_one_before():
    model, values = sampled(calm())
    for s, signal in enumerate(model.spec.signal):
        if signal.family in ("gaussian", "log_ratio"):
            x = (values[:, :, model.network.signal_offset[s]] - signal.mean) / signal.sd
            pairs = x[1:].size
            assert abs((x[1:] * x[:-1]).mean() - signal.memory) < ERRORS * 1.5 / np.sqrt(pairs)
            assert abs(x.var() - 1) < ERRORS * np.sqrt(2 * (1 + signal.memory**2) / (1 - signal.memory**2) / x.size)


@pytest.mark.parametrize(("absent", "lost"), [(0.0, 0.5), (0.5, 0.0)])
def test_memory_decays_over_samples_that_were_not_taken(absent, lost):
    model, values = sampled(calm(absent), lost=lost)
    for s, signal in enumerate(model.spec.signal):
        if signal.family in ("gaussian", "log_ratio"):
            x = (values[:, :, model.network.signal_offset[s]] - signal.mean) / signal.sd
            taken = np.isfinite(x)
            assert agrees(taken[20:].sum(), taken[20:].size, (1 - absent) * (1 - lost))
            for gap in (2, 3):
                between = ~taken[1 : len(x) - gap + 1] if gap == 2 else ~taken[1:-2] & ~taken[2:-1]
                both = between & taken[:-gap] & taken[gap:]
                product = (x[:-gap][both] * x[gap:][both]).mean()
                assert abs(product - signal.memory**gap) < ERRORS * 1.5 / np.sqrt(both.sum())


def test_the_vectorised_quantile_is_the_scalar_one_to_the_bit():
    u = np.concatenate([np.linspace(0.075, 0.925, 20_001), np.nextafter(0.5, [0, 1]), [0.5]])
    q = u - 0.5
    inside = q * q <= 0.180625
    assert [central_quantile(x) for x in q[inside]] == [normal_quantile(x) for x in u[inside]]


def test_a_value_is_the_same_alone_and_in_company():
    rng = np.random.default_rng(1)
    n = 64
    u, last, gap = rng.random(n), rng.normal(size=n), rng.integers(0, 64, n).astype(np.int8)
    gap[::2] = 1
    absent, share = 0.05, 0.1
    threshold = absent + (1 - absent) * share
    row = np.array([0.3, 1.7, absent, threshold, 1 / (1 - threshold), 1 / (threshold - absent), 0, 0])
    outlier, decay = np.array([share, 4.0, 9.0]), 0.9 ** np.arange(64.0)
    decay[0] = 0.0
    spread = np.sqrt(1 - decay * decay)
    work, index, together = np.empty(n + 1), np.empty(n + 1, dtype=np.int64), np.empty(n)
    draw_continuous(together, u, row, outlier, decay, spread, last, gap, work, index)
    for e in range(n):
        one = slice(e, e + 1)
        alone = np.empty(1)
        draw_continuous(alone, u[one], row, outlier, decay, spread, last[one], gap[one], work, index)
        assert alone[0] == together[e]
        if u[e] < absent:
            assert alone[0] == np.inf
        else:
            rest = (u[e] - absent) / (1 - absent)
            told = gaussian_draw(rest, 0.3, 1.7, decay[gap[e]], last[e], share, 4.0, 9.0)
            assert alone[0] == pytest.approx(told, rel=1e-9)


def test_every_value_reads_its_own_documented_channel():
    """The first presence signal of a kind, from nothing but its number in the file."""
    model = world()
    simulator = Simulator(model, 1, seed=3, onset=0 * model.network.onset)
    layout_kinds = ("gpu", "rank", "link", "node", "leaf", "rail", "communicator", "storage", "checkpoint", "job")
    for t in range(50):
        values = simulator.step().values[0]
        k0, k1 = simulator.state.key[0]
        for kind, name in enumerate(layout_kinds):
            own = [s for s in model.spec.signal if s.entity == name and s.family != "first_speaker"]
            for channel, signal in enumerate(own):
                if signal.family != "presence":
                    continue
                place = model.network.slice_of(model.spec.signal.index(signal))
                for e, value in enumerate(values[place]):
                    u = telemetry_uniform(t, kind << KIND_SHIFT | e, channel, k0, k1)
                    assert np.isnan(value) or value == (u >= 1.0 - signal.probability)


def test_cells_are_lost_and_late_as_declared():
    model = world()
    simulator = Simulator(model, 3000, seed=4, onset=0 * model.network.onset)
    slices = 8
    arrival = np.array(run(simulator, slices, "arrival")["arrival"])  # [T, B, streams, columns]
    declared = {s.name: s for s in model.spec.stream}
    for i, name in enumerate(STREAMS):
        stream, cells = declared[name], arrival[:, :, i]
        assert agrees((cells < 0).sum(), cells.size, stream.lost)
        first = cells[0][cells[0] >= 0]
        p = 1 / (1 + stream.delay)
        for d in range(stream.max_delay):
            assert agrees((first == d).sum(), len(first), p * (1 - p) ** d)
        assert first.max() <= stream.max_delay
        for b in range(0, 3000, 50):
            for c in range(cells.shape[2]):
                got = cells[:, b, c][cells[:, b, c] >= 0]
                assert (np.diff(got) >= 0).all()
                assert (got >= np.arange(slices)[cells[:, b, c] >= 0]).all()


def test_a_lost_cell_loses_the_values_of_its_stream_and_collector_and_no_others():
    model = world()
    streams = [s.model_copy(update={"lost": 0.3}) for s in model.spec.stream]
    model = changed(model, stream=streams)
    simulator = Simulator(model, 50, seed=4, onset=0 * model.network.onset)
    for _ in range(5):
        record = simulator.step()
        for s, signal in enumerate(model.spec.signal):
            missing = np.isnan(record.values[:, model.network.slice_of(s)])
            lost = record.arrival[:, STREAMS.index(signal.stream)] < 0
            node = model.layout.node_of(signal.entity)
            if signal.family == "first_speaker":
                node = np.array([-1])
            np.testing.assert_array_equal(missing, lost[:, node])


@pytest.mark.parametrize("layout", [Layout(2, 2), Layout(5, 4, rails=2, leaves=2, storage=3), Layout(1, 1)], ids=str)
def test_neighbourhoods_are_those_of_the_layout(layout):
    """What the kernels step through, for every kind of site and entity, against the table of the layout."""
    start, span = _spans(layout, set(ENTITY_KINDS), set(ENTITY_KINDS))
    for i, site_kind in enumerate(ENTITY_KINDS):
        for j, kind in enumerate(ENTITY_KINDS):
            for site in range(layout.count(site_kind)):
                found = np.zeros(layout.count(kind), dtype=np.int64)
                if start[i, j] >= 0:
                    ranges = span[start[i, j] + site]
                    found[ranges[0] : ranges[1] : ranges[2]] = 1
                    found[ranges[3] : ranges[4] : ranges[5]] = 2
                np.testing.assert_array_equal(found, layout.relation(site_kind, site, kind))


def test_phases_choose_rows():
    model = world("1x1")
    launch = Simulator(model, BATCH, seed=1, start="launch", onset=0 * model.network.onset)
    record = launch.step()
    assert (record.phase == PHASES.index("launch")).all()
    assert (record.job_class == MOVING).all()
    for s, signal in enumerate(model.spec.signal):
        if signal.family not in ("chorus", "first_speaker"):
            check_signal(model, signal, empty(model, "launch"), record.values[:, model.network.slice_of(s)])
