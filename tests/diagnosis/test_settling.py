"""What would settle a diagnosis: information against enumeration with the filter's own likelihood."""

import itertools

import numpy as np
import pytest

from clusterorch.causal.slices import components, job_class, successors
from clusterorch.diagnosis import settling
from clusterorch.diagnosis.commands import load_commands
from clusterorch.diagnosis.diagnose import default_incident_model, diagnose
from clusterorch.diagnosis.histories import Histories, LineKind
from clusterorch.diagnosis.outlook import Pair, look_out
from clusterorch.diagnosis.settling import information, settle
from clusterorch.inference.beliefs import Belief
from clusterorch.inference.filtering import NO_SOFT, Filter, SliceEvidence, likelihood_ratios, make_scratch
from clusterorch.inference.plan import NO_CLASS, make_plan, view_of
from clusterorch.inference.priors import STEP, OnsetPrior, incident_mix
from clusterorch.inference.transition import update
from clusterorch.models.compile import compile_network
from clusterorch.models.configurations import make_context
from clusterorch.models.layout import Layout
from clusterorch.models.rows import Rows, Situation
from clusterorch.models.spec import ModelSpec
from clusterorch.telemetry.patterns import load_formats
from clusterorch.telemetry.reading import read_paths
from tests.models import tiny

LOG = (
    "[2026-05-06 21:03:26] {host}: [rank3]:[E506 21:03:26.000000 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, "
    "Timeout(ms)=600000) ran for 600042 milliseconds before timing out.\n"
)
KERNEL = """\
May  6 21:03:20 {host} kernel: hello
May  6 21:03:26 {host} kernel: mlx5_core 0000:18:00.0 ibp24s0: Link down
May  6 21:04:31 {host} kernel: mlx5_core 0000:18:00.0 ibp24s0: Link up
"""


def two_modes(names=("fault", "other")):
    """The tiny model with a mode of its own for each of its two variants."""
    raw = tiny.raw()
    [mode] = raw["mode"]
    graded, plain = mode["variant"]
    raw["mode"] = [
        mode | {"name": names[0], "variant": [graded | {"share": 1.0}]},
        mode | {"name": names[1], "variant": [plain | {"share": 1.0}]},
    ]
    for edge in raw["edge"]:
        edge["from"] = {"fault.graded": f"{names[0]}.graded", "fault.plain": f"{names[1]}.plain"}.get(
            edge["from"], edge["from"]
        )
    raw["action"][0]["effect"][0]["of"] = [f"{names[1]}.plain"]
    return ModelSpec.model_validate(raw)


def world(names=("fault", "other")):
    """A belief of the tiny model after five slices in which a fault has probably begun."""
    network = compile_network(two_modes(names), Layout(1, 2), hidden_age=True)
    share = 0.3 * incident_mix(network, 0.5) + 0.02
    f = Filter(network, prior=OnsetPrior(np.tile(share, (8, 1))))
    values = np.full(network.width, np.nan)
    values[network.slice_of(network.signal_index("skips"))] = 1.0
    for _ in range(5):
        f.step(SliceEvidence(values))
    return f.posterior()


@pytest.fixture(scope="module")
def belief():
    return world()


def pairs_of(network, *names):
    found = []
    for name in names:
        s = network.signal_index(name)
        found += [Pair(s, e) for e in range(network.layout.count(network.spec.signal[s].entity))]
    return found


def by_filter(belief, pairs, outcomes):
    """Mutual information by the filter's update: every outcome, its evidence, its posterior over modes."""
    network = belief.network
    plan = make_plan(network)
    scratch = make_scratch(plan, network.width)
    prior = np.array(list(belief.modes.values()))
    total, reached = 0.0, 0.0
    for outcome, weight in outcomes:
        values = np.full(network.width, np.nan)
        for pair, value in zip(pairs, outcome, strict=True):
            values[network.signal_offset[pair.signal] + pair.entity] = value
        last, gap, after = np.zeros(network.width), np.zeros(network.width, dtype=np.int64), belief.vector.copy()
        base = likelihood_ratios(plan, view_of(STEP, NO_CLASS), values, last, gap, scratch)
        ratio = update(plan, STEP, NO_CLASS, scratch[3], NO_SOFT, scratch[5], belief.vector, after)
        p = np.exp(base + ratio) * weight
        modes = np.array(list(Belief(network, after).modes.values()))
        kept = modes > 0.0
        total += p * float((modes[kept] * np.log(modes[kept] / prior[kept])).sum())
        reached += p
    assert reached == pytest.approx(1.0, abs=1e-6)
    return total


DISCRETE = [("alarm", 2), ("state", 2), ("skips", 5), ("timeout", 2)]


@pytest.mark.parametrize(
    "chosen", [DISCRETE[:1], DISCRETE[1:3], DISCRETE[3:], DISCRETE], ids=["alarm", "job", "chorus", "all"]
)
def test_the_exact_sum_is_that_of_the_filter_over_every_outcome(belief, chosen):
    network = belief.network
    pairs = pairs_of(network, *(name for name, _ in chosen))
    classes = [dict(DISCRETE)[network.spec.signal[p.signal].name] for p in pairs]
    every = [(outcome, 1.0) for outcome in itertools.product(*(range(c) for c in classes))]
    gain, error = information(look_out(belief, pairs, dropped=0.0))
    assert error == 0.0
    assert gain == pytest.approx(by_filter(belief, pairs, every), abs=1e-6)
    if chosen != DISCRETE[1:2]:
        assert gain > 1e-4


def test_sampling_agrees_with_the_exact_sum(belief, monkeypatch):
    outlook = look_out(belief, pairs_of(belief.network, "alarm", "skips", "timeout"), dropped=0.0)
    exact, _ = information(outlook)
    monkeypatch.setattr(settling, "MOST_OUTCOMES", 0)
    for seed in range(3):
        sampled, error = information(outlook, draws=20_000, seed=seed)
        assert 0.0 < error < 0.05 * exact
        assert abs(sampled - exact) < 4.9 * error + 0.01 * exact


def test_a_sample_of_a_continuous_signal_agrees_with_an_integral(belief):
    network = belief.network
    pairs = pairs_of(network, "heat")[:1]
    grid = np.linspace(-60.0, 160.0, 2201)
    outcomes = [((x,), grid[1] - grid[0]) for x in grid] + [((np.inf,), 1.0)]
    gain, error = information(look_out(belief, pairs, dropped=0.0), draws=20_000)
    assert abs(gain - by_filter(belief, pairs, outcomes)) < 4.9 * error + 1e-3
    assert gain > 10 * error


def test_information_is_never_negative_and_never_more_than_there_is_to_know(belief):
    prior = np.array(list(belief.modes.values()))
    entropy = -float((prior * np.log(prior)).sum())
    for names in [("alarm",), ("heat", "power"), ("heat", "alarm", "timeout", "skips", "state")]:
        for seed in range(5):
            gain, _ = information(look_out(belief, pairs_of(belief.network, *names), dropped=0.0), draws=8, seed=seed)
            assert 0.0 <= gain <= entropy


def test_a_signal_that_is_the_same_for_all_tells_nothing(belief):
    # The job says `ill` as often with a fault as without; only a save changes that.
    assert information(look_out(belief, pairs_of(belief.network, "state"), dropped=0.0))[0] == pytest.approx(
        0.0, abs=1e-12
    )
    assert information(look_out(belief, pairs_of(belief.network, "power"), dropped=0.0), draws=50)[0] == pytest.approx(
        0.0, abs=1e-12
    )
    assert information(look_out(belief, [])) == (0.0, 0.0)


def test_more_entities_never_tell_less(belief):
    network = belief.network
    one = information(look_out(belief, pairs_of(network, "alarm")[:1], dropped=0.0))[0]
    both = information(look_out(belief, pairs_of(network, "alarm"), dropped=0.0))[0]
    assert both >= one


def test_the_names_of_modes_do_not_matter(belief):
    other = world(("zebra", "aardvark"))
    for names in [("alarm", "timeout"), ("heat", "skips")]:
        ours = information(look_out(belief, pairs_of(belief.network, *names), dropped=0.0))
        theirs = information(look_out(other, pairs_of(other.network, *names), dropped=0.0))
        assert ours == theirs


# ---------------------------------------------------------------- what a log shows


def chance(network, rows, kind, situations):
    """[3] chance in one slice that a kind is shown, from the declared rows."""
    numbers = [rows.of(kind.signal, situation) for situation in situations]
    by_number = {number: parameters for (_, parameters), number in rows.numbers.items()}
    given = [by_number[number] for number in numbers]
    family = network.spec.signal[kind.signal].family
    if family == "chorus":
        told = given[0][0]
        return np.array([told if kind.told else told * p[3 - r] + (1.0 - told) * p[4] for r, p in enumerate(given)])
    return np.array([1.0 - p[0] if family == "count" else p[kind.value] for p in given])


def walked(network, v, kind, level, slices):
    """[configurations, 3] chance that a kind has been shown, by a walk over every path of a variant."""
    block, rows = network.blocks[v], Rows(network.spec)
    law, chain, limits = block.chain.law, block.chain, network.limits
    mass = np.zeros(len(chain.configurations))
    silent = np.zeros((len(chain.configurations), 3))
    severity = block.variant.severity_levels[level]

    def rates(configuration):
        lasting = {m.name for i, m in enumerate(law.mechanisms) if configuration.bits >> i & 1}
        job = job_class(law, configuration.bits, make_context(STEP, 0, save_ends=False))
        found = np.zeros(3)
        for share, transients in components(law, configuration.bits):
            active = frozenset(lasting | set(transients))
            found += share * chance(network, rows, kind, [Situation(active, severity, STEP, job, r) for r in range(3)])
        return found

    background = chance(network, rows, kind, [Situation(frozenset(), 1, STEP, 0, 0)] * 3)[0]

    def step(configuration, starts):
        due = sum(configuration.age >= limit for limit in limits)
        context = make_context(STEP, due, save_ends=False)
        for after, p in successors(law, configuration, context, starts=starts).items():
            halted = job_class(law, after.bits, context) == 1
            yield after._replace(age=min(configuration.age + 1, limits[-1]) if halted else 0), p

    def walk(configuration, p, unshown, age, last, *, starts=False):
        for after, q in step(configuration, starts):
            left = unshown * (1.0 - rates(after))
            if age == last:
                mass[chain.index(after)] += p * q
                silent[chain.index(after)] += p * q * left * (1.0 - background) ** (slices - last)
            else:
                walk(after, p * q, left, age + 1, last)

    start = chain.configurations[0]._replace(bits=0, stages=(0,) * len(law.edges), poisoned=0, age=0)
    for last in range(1, slices + 1):
        walk(start, 1.0, np.ones(3), 1, last, starts=True)
    reached = mass > 0.0
    return reached, 1.0 - silent[reached] / mass[reached, None]


@pytest.mark.parametrize("v", [0, 1, 2])
def test_what_a_log_has_shown_by_now_is_that_of_a_walk_over_all_paths(belief, v):
    network, slices = belief.network, 5
    kinds = [
        LineKind(network.signal_index("alarm"), 1), LineKind(network.signal_index("skips"), 1),
        LineKind(network.signal_index("timeout"), 1), LineKind(network.signal_index("timeout"), 1, told=True),
    ]  # fmt: skip
    histories = Histories(network, kinds, slices)
    for level in range(network.blocks[v].levels):
        for k, kind in enumerate(kinds):
            reached, expected = walked(network, v, kind, level, slices)
            np.testing.assert_allclose(histories.shown(v, level)[reached, k], expected, atol=1e-12)


def test_a_log_tells_of_what_the_moment_no_longer_shows():
    network = default_incident_model().hidden_network
    v = [block.variant.name for block in network.blocks].index("gpu_xid.lost_from_bus")
    kind = LineKind(network.signal_index("bus_lost_text"), 1)
    histories = Histories(network, [kind])
    mechanisms = [m.name for m in network.blocks[v].chain.law.mechanisms]
    on, told = mechanisms.index("device_lost"), mechanisms.index("loss_reported")
    after = [c.bits >> on & 1 and not c.bits >> told & 1 for c in network.blocks[v].chain.configurations]
    shown = histories.shown(v, 0)[np.array(after, dtype=bool), 0, 2]
    assert histories.quiet[0] < 1e-3
    assert shown.max() > 0.8  # the line was printed in one slice, which is over
    assert shown.min() < 1e-3  # and here it is still to come


# ---------------------------------------------------------------- of real logs


@pytest.fixture(scope="module")
def model():
    return default_incident_model()


def offers_of(model, folder, text, **names):
    folder.mkdir()
    (folder / "a.log").write_text(text.format(**names))
    found = diagnose(model, read_paths([folder], load_formats(model.format_files)))
    return found, settle(found, load_commands(model))


def test_offers_are_ranked_and_the_first_two_tell_where_they_would_lead(model, tmp_path):
    found, offers = offers_of(model, tmp_path / "logs", LOG, host="node-17")
    assert offers
    gains = [offer.gain for offer in offers]
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] >= 0.0
    assert gains[0] > 0.01
    assert [bool(offer.outcomes) for offer in offers[:3]] == [True, True, False]
    for offer in offers[:2]:
        assert sum(o.probability for o in offer.outcomes) <= 1.0 + 1e-9
        assert {o.leading for o in offer.outcomes} == {found.leading}
        # The law of total probability, where the two are all there is.
        if abs(sum(o.probability for o in offer.outcomes) - 1.0) < 1e-9:
            mean = sum(o.probability * o.now for o in offer.outcomes)
            assert mean == pytest.approx(found.modes[found.leading], abs=1e-3)
    assert any(suspect.host == "node-17" for suspect in offers[0].suspects) or offers[0].command.runs_on == "job"


def test_the_names_of_hosts_do_not_matter(model, tmp_path):
    gains = []
    for number, host in enumerate(("node-17", "zz-99")):
        _, offers = offers_of(model, tmp_path / str(number), LOG, host=host)
        gains.append([(o.command.name, o.gain) for o in offers])
    assert gains[0] == gains[1]


def test_what_the_logs_have_shown_is_no_news(model, tmp_path):
    found, _ = offers_of(model, tmp_path / "logs", KERNEL, host="n7")
    network, universe = found.belief.network, found.universe
    complete, seen = settling._known(found, network, universe)
    down = network.signal_index("nic_link_down")
    assert complete == frozenset()
    assert any(pair.signal == down for pair in seen)
    kernel = next(c for c in load_commands(model) if "nic_link_down" in c.signals)
    suspects = settling.suspects_of(found.belief, universe)
    left = settling._pairs(kernel, suspects, suspects, network, universe, (complete, seen))
    assert not set(left) & seen
    all_known = frozenset(kernel.streams)
    assert settling._pairs(kernel, suspects, suspects, network, universe, (all_known, set())) == []
