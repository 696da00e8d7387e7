import numpy as np
import pytest

from clusterorch.causal.slices import (
    ERLANG,
    FAST,
    GEOMETRIC,
    HALTED,
    RECURRENT,
    TIMER,
    VARIANT,
    Configuration,
    EdgeLaw,
    MechanismLaw,
    TransientLaw,
    VariantLaw,
    components,
    job_class,
)
from clusterorch.models import load
from clusterorch.models.configurations import expand, make_context
from clusterorch.models.ground import ground, limit_slices
from clusterorch.models.spec import PHASES

STEP, SAVE = PHASES.index("step"), PHASES.index("save")
STEPPING = (STEP, 0, False)


def mechanism(name="m", effect="none", heals=0.0):
    return MechanismLaw(name, effect, heals)


def edge(parent, child, kind=FAST, *, gate=1.0, advance=1.0, stages=1, due=0, phases=None):
    return EdgeLaw(f"{parent}>{child}", parent, child, kind, gate, advance, stages, due, phases)


def law(mechanisms, edges, *, transients=(), copies=0):
    return VariantLaw("test", tuple(mechanisms), tuple(edges), tuple(transients), copies)


def chain_of(*arguments, limits=(), hidden_age=False, **options):
    return expand(law(*arguments, **options), limits, hidden_age=hidden_age)


def table(chain, context=STEPPING):
    """{(before, after): probability} in a context."""
    named = chain.configurations
    return {(named[b], named[a]): p for b, a, p in chain.tables[chain.table_of[context]]}


def onset(chain, context=STEPPING, poisoned=0):
    per_start = len(chain.onsets) // (chain.law.copies + 1)
    row = chain.onsets[poisoned * per_start + chain.onset_of[context]]
    return {chain.configurations[a]: p for a, p in row}


def at(bits, *stages, poisoned=0, age=0):
    return Configuration(bits, stages, poisoned, age)


def test_a_fast_gate_is_drawn_once():
    chain = chain_of([mechanism()], [edge(VARIANT, 0, gate=0.3)])
    off, on = at(0, 0), at(1, 0)
    assert onset(chain) == {off: 0.7, on: pytest.approx(0.3)}
    assert table(chain) == {(off, off): 1.0, (on, on): 1.0}


def test_a_gate_is_open_only_in_its_phases():
    chain = chain_of([mechanism()], [edge(VARIANT, 0, gate=0.3, phases=frozenset([SAVE]))])
    assert onset(chain) == {at(0, 0): 1.0}
    assert onset(chain, (SAVE, 0, False)) == {at(0, 0): 0.7, at(1, 0): pytest.approx(0.3)}


def test_a_geometric_delay_leaves_with_its_probability():
    chain = chain_of([mechanism()], [edge(VARIANT, 0, GEOMETRIC, gate=0.5, advance=0.25)])
    idle, waiting, on = at(0, 0), at(0, 1), at(1, 0)
    assert onset(chain) == {idle: 0.5, waiting: 0.5}
    assert table(chain) == {
        (idle, idle): 1.0, (waiting, waiting): 0.75, (waiting, on): 0.25, (on, on): 1.0
    }  # fmt: skip


def test_an_erlang_delay_goes_stage_by_stage():
    chain = chain_of([mechanism()], [edge(VARIANT, 0, ERLANG, advance=0.4, stages=2)])
    first, second, on = at(0, 1), at(0, 2), at(1, 0)
    assert onset(chain) == {first: 1.0}
    assert table(chain) == {
        (first, first): 0.6, (first, second): 0.4, (second, second): 0.6, (second, on): 0.4, (on, on): 1.0
    }  # fmt: skip


def test_the_first_of_two_arrivals_counts():
    edges = [edge(VARIANT, 0, GEOMETRIC, advance=0.2), edge(VARIANT, 0, GEOMETRIC, advance=0.5)]
    chain = chain_of([mechanism()], edges)
    waiting, on = at(0, 1, 1), at(1, 0, 0)
    assert table(chain)[waiting, on] == pytest.approx(1.0 - 0.8 * 0.5)
    assert chain.configurations == (waiting, on)


STALL_THEN_CRASH = (
    [mechanism("stuck", "stall"), mechanism("ended", "crash")],
    [edge(VARIANT, 0), edge(0, 1, TIMER, gate=0.9, due=1)],
)


def test_a_timer_waits_for_a_published_limit():
    chain = chain_of(*STALL_THEN_CRASH, limits=(3,))
    armed, spared, ended = at(1, 0, 1), at(1, 0, 0), at(3, 0, 0)
    assert onset(chain) == {armed: 0.9, spared: pytest.approx(0.1)}
    assert table(chain, (STEP, 0, False))[armed, armed] == 1.0
    assert table(chain, (STEP, 1, False))[armed, ended] == 1.0
    assert table(chain, (STEP, 1, False))[spared, spared] == 1.0


def test_a_hidden_timer_counts_slices_of_halt():
    chain = chain_of(*STALL_THEN_CRASH, limits=(3,), hidden_age=True)
    assert onset(chain) == {at(1, 0, 1, age=1): 0.9, at(1, 0, 0, age=1): pytest.approx(0.1)}
    steps = table(chain)
    assert steps[at(1, 0, 1, age=1), at(1, 0, 1, age=2)] == 1.0
    assert steps[at(1, 0, 1, age=2), at(1, 0, 1, age=3)] == 1.0
    assert steps[at(1, 0, 1, age=3), at(3, 0, 0, age=0)] == 1.0
    assert steps[at(1, 0, 0, age=3), at(1, 0, 0, age=3)] == 1.0  # nothing is told apart beyond the last limit


def test_a_timer_is_disarmed_when_its_cause_heals():
    chain = chain_of(
        [mechanism("stuck", "stall", heals=0.5), mechanism("ended", "crash")],
        [edge(VARIANT, 0), edge(0, 1, TIMER, due=1)],
        limits=(3,),
    )
    armed, healed = at(1, 0, 1), at(0, 0, 0)
    assert table(chain, (STEP, 0, False))[armed, healed] == 0.5
    assert table(chain, (STEP, 1, False))[armed, healed] == 0.5
    assert table(chain, (STEP, 1, False))[armed, at(3, 0, 0)] == 0.5


def test_what_heals_does_not_come_back_by_itself():
    chain = chain_of([mechanism(heals=0.25)], [edge(VARIANT, 0)])
    on, off = at(1, 0), at(0, 0)
    assert table(chain) == {(on, on): 0.75, (on, off): 0.25, (off, off): 1.0}


def test_a_recurrent_edge_comes_again_and_again():
    chain = chain_of([mechanism(heals=1.0)], [edge(VARIANT, 0, RECURRENT, advance=0.2)])
    on, off = at(1, 0), at(0, 0)
    assert onset(chain) == {off: 1.0}
    assert table(chain) == {(off, on): 0.2, (off, off): 0.8, (on, off): 1.0}


def test_a_chain_of_fast_edges_takes_one_slice():
    chain = chain_of([mechanism("a"), mechanism("b", heals=1.0)], [edge(VARIANT, 0), edge(0, 1, gate=0.5)])
    assert onset(chain) == {at(1, 0, 0): 0.5, at(3, 0, 0): 0.5}
    assert table(chain)[at(3, 0, 0), at(1, 0, 0)] == 1.0


def test_poisoned_copies_are_counted_when_a_save_ends():
    chain = chain_of([mechanism("nan", "poison")], [edge(VARIANT, 0)], copies=2)
    saving = (SAVE, 0, True)
    assert onset(chain, saving) == {at(1, 0, poisoned=1): 1.0}
    assert table(chain, saving) == {
        (at(1, 0, poisoned=m), at(1, 0, poisoned=min(m + 1, 2))): 1.0 for m in range(3)
    }  # fmt: skip
    assert table(chain) == {(at(1, 0, poisoned=m), at(1, 0, poisoned=m)): 1.0 for m in range(3)}


def test_a_restart_from_a_poisoned_copy_stays_poisoned():
    chain = chain_of([mechanism("nan", "poison")], [edge(VARIANT, 0, GEOMETRIC, advance=0.5)], copies=2)
    assert onset(chain, poisoned=0) == {at(0, 1): 1.0}
    assert onset(chain, poisoned=2) == {at(1, 0, poisoned=2): 1.0}


def test_a_save_that_is_blocked_poisons_nothing():
    mechanisms = [mechanism("nan", "poison"), mechanism("wall", "block_save")]
    chain = chain_of(mechanisms, [edge(VARIANT, 0), edge(VARIANT, 1)], copies=2)
    assert onset(chain, (SAVE, 0, True)) == {at(3, 0, 0): 1.0}


@pytest.mark.parametrize(
    ("effect", "phase", "expected"),
    [
        ("none", "step", 0), ("slow", "step", 0), ("poison", "save", 0), ("stall", "step", 1),
        ("crash", "load", 2),
        ("block_save", "step", 0), ("block_save", "save", 1), ("block_start", "step", 0),
        ("block_start", "launch", 1), ("block_start", "init_comm", 1), ("block_start", "load", 1),
        ("block_start", "save", 0),
    ],
)  # fmt: skip
def test_an_effect_sets_the_class_of_the_job(effect, phase, expected):
    one = law([mechanism(effect=effect)], [edge(VARIANT, 0)])
    context = make_context(PHASES.index(phase), 0, False)  # noqa: FBT003
    assert job_class(one, 1, context) == expected
    assert job_class(one, 0, context) == 0


def test_a_transient_mechanism_is_a_share_of_each_configuration():
    one = law([mechanism("a"), mechanism("b")], [], transients=[TransientLaw("t", ((0, 0.5), (1, 0.8)))])
    assert components(one, 0) == [(1.0, ())]
    assert {names: p for p, names in components(one, 3)} == {
        ("t",): pytest.approx(0.9),
        (): pytest.approx(0.1),
    }


REFERENCE = load("reference")
LIMITS = tuple(sorted(set(limit_slices(REFERENCE.spec).values())))
LAWS = {v.name: v.law for v in ground(REFERENCE.spec, 1, 3)}
SHORT = {v.name: v.law for v in ground(REFERENCE.spec, 1, 3, {"transport": 30, "watchdog": 75, "heartbeat": 75})}


@pytest.mark.parametrize("name", LAWS)
def test_rows_are_distributions(name):
    for hidden in (False, True):
        chain = expand(LAWS[name], LIMITS, hidden_age=hidden)
        for rows in chain.tables:
            sums = np.zeros(len(chain.configurations))
            for before, _, p in rows:
                assert p > 0.0
                sums[before] += p
            assert sums == pytest.approx(np.ones_like(sums), abs=1e-12)
        for start in chain.onsets:
            assert sum(p for _, p in start) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("name", SHORT)
def test_a_hidden_age_follows_the_published_clock(name):
    """Sum over paths of (configuration, age): the age is counted here by hand from the class of the job."""
    limits = (2, 5)
    published = expand(SHORT[name], limits, hidden_age=False)
    hidden = expand(SHORT[name], limits, hidden_age=True)
    context = make_context(STEP, 0, False)  # noqa: FBT003

    def aged(configuration, age):
        halted = job_class(published.law, configuration.bits, context) == HALTED
        return configuration, min(age + 1, limits[-1]) if halted else 0

    outside: dict = {}
    for configuration, p in onset(published).items():
        key = aged(configuration, 0)
        outside[key] = outside.get(key, 0.0) + p
    inside = onset(hidden)
    steps = [table(published, (STEP, due, False)) for due in range(len(limits) + 1)]
    hidden_steps = table(hidden)
    for _ in range(12):
        assert inside == pytest.approx({c._replace(age=age): p for (c, age), p in outside.items()}, abs=1e-13)
        following: dict = {}
        for (configuration, age), p in outside.items():
            for (before, after), q in steps[sum(age >= limit for limit in limits)].items():
                if before == configuration:
                    key = aged(after, age)
                    following[key] = following.get(key, 0.0) + p * q
        outside = following
        following = {}
        for (before, after), q in hidden_steps.items():
            if before in inside:
                following[after] = following.get(after, 0.0) + inside[before] * q
        inside = following


def test_too_many_configurations_are_noticed():
    edges = [edge(VARIANT, i, gate=0.5) for i in range(4)]
    with pytest.raises(OverflowError, match="test"):
        expand(law([mechanism(f"m{i}") for i in range(4)], edges), (), hidden_age=False, most=15)
    assert len(chain_of([mechanism(f"m{i}") for i in range(4)], edges).configurations) == 16
