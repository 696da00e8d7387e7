import numpy as np
import pytest

from clusterorch.causal.slices import DOWN, HALTED, MOVING
from clusterorch.models.spec import PHASES
from clusterorch.simulation import Simulator, simulate
from clusterorch.simulation.plan import active
from tests.simulation.worlds import quick, run, with_effect, world

LAUNCH, INIT, LOAD, STEP, EVAL, SAVE, STOP, QUEUED = range(len(PHASES))


def calm(model, batch=1, **options):
    return Simulator(model, batch, onset=0 * model.network.onset, **options)


def held(model, effect, start, stop):
    name = with_effect(model, effect)
    return [f"{name}=1@{start}:{stop}", f"{name}=0@{stop}:"]


def test_phases_follow_the_schedule_of_the_job():
    model = world("1x1")
    job, dt = model.spec.job, model.spec.model.slice_seconds
    lengths = [
        (LAUNCH, job.launch_seconds), (INIT, job.init_comm_seconds), (LOAD, job.load_seconds),
        (STEP, job.save_every_seconds), (SAVE, job.save_seconds),
        (STEP, job.save_every_seconds), (SAVE, job.save_seconds),
    ]  # fmt: skip
    wanted = [phase for phase, seconds in lengths for _ in range(-(-int(seconds) // int(dt)))]
    seen = run(calm(model, start="launch"), len(wanted), "phase", "save_ends", "saved", "saves")
    assert [int(p[0]) for p in seen["phase"]] == wanted
    ends = [t for t, p in enumerate(wanted) if p == SAVE and (t + 1 == len(wanted) or wanted[t + 1] == STEP)]
    assert [t for t, x in enumerate(seen["save_ends"]) if x[0]] == ends
    assert [t for t, x in enumerate(seen["saved"]) if x[0]] == ends
    assert seen["saves"][-1][0] == 2


def test_a_halt_stops_the_clock_and_counts_its_age():
    model = quick()
    plain = simulate(model, 20, onset=0 * model.network.onset)
    halted = simulate(model, 25, onset=0 * model.network.onset, do=held(model, "stall", 2, 7))
    np.testing.assert_array_equal(halted.published["job_class"][2:7], HALTED)
    np.testing.assert_array_equal(halted.published["age_before"][:9], [0, 0, 0, 1, 2, 3, 4, 5, 0])
    # The schedule reads the class of the slice before: it stands still for five slices.
    np.testing.assert_array_equal(np.delete(halted.published["phase"], range(3, 8)), plain.published["phase"])


def test_a_crash_stops_the_job_for_good():
    model = quick()
    trace = simulate(model, 12, onset=0 * model.network.onset, do=held(model, "crash", 3, 6))
    assert trace.published["job_class"][3:6].tolist() == [DOWN] * 3
    assert trace.published["phase"][4:].tolist() == [STOP] * 8
    assert trace.published["job_class"][6:].tolist() == [MOVING] * 6
    assert trace.published["progress"][3:].tolist() == [3.0] * 9


def test_a_save_that_is_halted_in_its_last_slice_completes_later():
    model = quick()
    trace = simulate(model, 10, onset=0 * model.network.onset, do=held(model, "stall", 4, 6))
    assert trace.published["phase"][:8].tolist() == [STEP] * 3 + [SAVE] * 4 + [STEP]
    assert trace.published["save_ends"][:8].tolist() == [0, 0, 0, 0, 1, 1, 1, 0]
    assert trace.published["saved"][:8].tolist() == [0, 0, 0, 0, 0, 0, 1, 0]


def test_slow_mechanisms_slow_progress():
    model = quick()
    slow = next(m for m in model.spec.mechanism if m.effect == "slow")
    factor = slow.slowdown[1] if isinstance(slow.slowdown, list) else slow.slowdown
    trace = simulate(model, 3, onset=0 * model.network.onset, do=[f"{slow.name}=1"])
    np.testing.assert_allclose(trace.published["progress"], np.arange(1, 4) / factor)


def test_a_restart_launches_and_reloads_the_newest_copy():
    model = quick()
    simulator = calm(model)
    run(simulator, 7)  # one save, at progress 3, and two slices more
    assert simulator.state.progress[0] == 5.0
    record = simulator.step(("restart_rank", 0))
    assert record.phase[0] == LAUNCH
    assert record.progress[0] == 3.0
    assert record.held[0] == model.layout.copies
    run(simulator, 40)
    assert simulator.state.phase[0] in (STEP, SAVE)


def test_a_roll_back_discards_newer_copies():
    model = quick()
    simulator = calm(model)
    run(simulator, 11)  # two saves: progress 3 and 6
    assert simulator.state.copy_progress[0].tolist() == [6.0, 3.0, 0.0]
    record = simulator.step(("roll_back", 1))
    assert record.progress[0] == 3.0
    assert record.held[0] == model.layout.copies - 1
    assert simulator.step(("roll_back", 2)).progress[0] == 0.0
    assert simulator.state.held[0] == 0


N = 10_000


def agrees(count, p):
    return abs(count - N * p) <= 4.9 * np.sqrt(N * p * (1 - p)) + 1e-9


@pytest.mark.parametrize(
    ("fault", "action", "clears"),
    [
        ("gpu_xid.gsp_hang/1", ("isolate_node", 0), 0.99),
        ("gpu_xid.gsp_hang/1", ("isolate_node", 1), 0.0),
        ("stuck_collective.member_elsewhere/1", ("isolate_node", 1), 0.9),
        ("gpu_xid.engine_fault/3", ("restart_rank", 1), 0.4),
        ("gpu_xid.engine_fault/3", ("restart_rank", 0), 0.0),
        ("ib_link_flap.beyond_limit/0", ("around_rail", 0), 0.85),
        ("ib_link_flap.beyond_limit/0", "wait", 0.0),
    ],
)
def test_actions_clear_with_the_probability_of_the_first_row_that_matches(fault, action, clears):
    model = world("2x2")
    simulator = calm(model, N, fault=fault, at=0)
    run(simulator, 2)
    before = simulator.state.bits.copy()
    simulator.step(action)
    gone = simulator.state.variant < 0
    assert agrees(gone.sum(), clears)
    assert (simulator.state.bits[gone] == 0).all()
    restarts = next(a.restarts for a in model.spec.action if a.name == (action if action == "wait" else action[0]))
    assert (simulator.state.phase[~gone] == LAUNCH).all() == restarts
    if not restarts and clears == 0:
        assert (simulator.state.bits & before == before & simulator.state.bits).all()
    if restarts:
        assert (simulator.state.entered[~gone] > 0).all()


def test_a_poisoned_copy_keeps_the_fault_through_a_restart():
    model = quick()
    poison = next(m for m in model.spec.mechanism if m.effect == "poison")
    bit = [m.name for m in model.spec.mechanism].index(poison.name)
    simulator = calm(model, 2000, fault="nan_injection.overflow_forever", at=0)
    run(simulator, 7)
    assert (simulator.state.poisoned == 1).all()
    simulator.step(("restart_rank", 0))
    assert (simulator.state.variant >= 0).all()
    assert active(simulator.state.bits, bit).all()
    assert (simulator.state.poisoned == 1).all()
    simulator.step(("roll_back", 1))
    gone = simulator.state.variant < 0
    assert abs(gone.mean() - 0.9) < 4.9 * np.sqrt(0.09 / 2000)
    assert (simulator.state.poisoned == 0).all()


def test_actions_may_differ_between_instances():
    simulator = calm(world("2x2"), 3)
    record = simulator.step([None, ("restart_rank", 1), "wait"])
    assert record.phase.tolist() == [STEP, LAUNCH, STEP]


def test_a_restart_sets_the_age_of_a_halt_to_nothing():
    model = quick()
    stalled = held(model, "stall", 2, 9)
    trace = simulate(model, 9, onset=0 * model.network.onset, do=stalled, actions={5: ("restart_rank", 0)})
    assert trace.published["age_before"].tolist() == [0, 0, 0, 1, 2, 0, 1, 2, 3]
    assert trace.published["phase"][5:].tolist() == [LAUNCH] * 4
