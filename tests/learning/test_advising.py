"""An agent asked about logs: it sees the diagnosis as it would see a belief in the environment, and says what for."""

import dataclasses
import io
import re

import numpy as np
import pytest
import torch

from clusterorch.causal.slices import DOWN, HALTED, MOVING
from clusterorch.diagnosis.advice import advise
from clusterorch.diagnosis.agent_advice import to_json
from clusterorch.diagnosis.dossier import Dossier, follow_ups
from clusterorch.diagnosis.job_state import read_job
from clusterorch.environment.episodes import Episodes, Settings
from clusterorch.environment.making import episodes_of
from clusterorch.environment.standing import Standing, believe, stand
from clusterorch.errors import InvalidAgent, InvalidModel
from clusterorch.inference.beliefs import Belief
from clusterorch.learning.advising import Adviser
from clusterorch.learning.seeing import inputs_of
from clusterorch.models.spec import PHASES, STREAMS
from clusterorch.policies.aims import aim_of
from clusterorch.reports.page import page
from clusterorch.reports.terminal import show_diagnosis
from clusterorch.reports.wording import Terminal
from clusterorch.telemetry.readings import PhaseMark
from tests.diagnosis.made_logs import lost_from_bus
from tests.learning.made_agents import ending_most, kept, made

LOST = "gpu_xid.lost_from_bus"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return lost_from_bus(tmp_path_factory.mktemp("logs"))


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    torch.set_num_threads(1)
    return kept(tmp_path_factory.mktemp("agents") / "ender", ending_most())


def with_belief(found, vector):
    belief = Belief(found.belief.network, vector / vector.sum())
    return dataclasses.replace(found, belief=belief, modes=belief.modes, variants=belief.variants)


def state(found, variant, host, configuration=0):
    """All mass on one variant at the first site of a host."""
    network = found.belief.network
    block = next(b for b in network.blocks if b.variant.name == variant)
    sites = network.layout.node_of(block.variant.spec.site)
    site = 0 if host is None else int(np.flatnonzero(sites == found.universe.hosts.index(host))[0])
    vector = np.zeros(network.states)
    vector[block.offset + configuration * block.sites + site] = 1.0
    return vector


def healthy(found):
    vector = np.zeros(found.belief.network.states)
    vector[0] = 1.0
    return vector


# ---------------------------------------------------------------- what the agent is shown


STANDING = Standing("step", MOVING, 0, (17, 137, 257), 1, 480, 4.0)


def test_a_stood_job_is_seen_as_one_that_was_played():
    """Every column and mask equals that of an episode of the environment in the same place."""
    played = episodes_of(1, layout="2x2", hours=4.0, observe="belief", seed=1, spares=2)
    played.begin(np.array([0]), np.array([0]))
    everyone, compared = np.array([True]), 0
    for _ in range(120):
        played.decide(np.array([0]), everyone)
        world, now = played.world, int(played.world.books.time[0])
        state, books = world.state, world.books
        if state.job_class[0] != MOVING or (books.place != 0).any() or state.held[0] < 3 or books.failures[0]:
            continue
        ages = tuple(now - books.copy_time[0])
        told = Standing(PHASES[state.phase[0]], MOVING, 0, ages, int(books.spares[0]), now, 4.0)
        stood = stand(played.model, told)
        believe(stood, world.network, played.believer.current.vector[0])
        here, there = inputs_of(played), inputs_of(stood)
        # When each collector was heard is not for logs to tell: all were heard just now.
        heard = 2 * len(STREAMS)
        assert (there.job[:, 0:heard:2] == 1.0).all()
        assert (there.nodes[:, :, 1:heard:2] == 0.0).all()
        torch.testing.assert_close(here.job[:, heard:], there.job[:, heard:], rtol=0, atol=0)
        torch.testing.assert_close(here.nodes[:, :, heard:], there.nodes[:, :, heard:], rtol=0, atol=0)
        torch.testing.assert_close(here.moves, there.moves, rtol=0, atol=0)
        assert (here.masks == there.masks).all()
        compared += 1
    assert compared > 50


def test_a_job_that_is_down_waits_for_the_scheduler(found):
    model = found.model.with_layout(found.universe.layout)
    up, down = stand(model, STANDING), stand(model, STANDING._replace(job_class=DOWN))
    names = up.names.job
    rows = {name: (up.window.job_rows[0, -1, i], down.window.job_rows[0, -1, i]) for i, name in enumerate(names)}
    changed = {name for name, (before, after) in rows.items() if before != after}
    assert changed == {"class.moving", "class.down", "failures", "until_requeue"}
    assert rows["until_requeue"][1] > 0.0


def test_the_belief_is_the_diagnosis_own_whatever_hides_the_age(found):
    assert found.belief.network.hidden_age
    episodes = stand(found.model.with_layout(found.universe.layout), STANDING)
    assert not episodes.world.network.hidden_age
    believe(episodes, found.belief.network, found.belief.vector)
    outlook, belief = episodes.outlook, found.belief
    assert outlook.variants[0, 0] == pytest.approx(belief.empty, rel=1e-5)
    names = [block.variant.name for block in episodes.world.network.blocks]
    assert names == list(belief.variants)
    assert outlook.variants[0, 1:] == pytest.approx(np.array(list(belief.variants.values())), rel=1e-5, abs=1e-12)
    at_node = np.zeros(found.universe.layout.nodes)
    for (kind, number), p in belief.sites().items():
        node = found.universe.layout.node_of(kind)[number]
        at_node[node] += p if node >= 0 else 0.0
    assert outlook.nodes[0].sum(axis=1) == pytest.approx(at_node, rel=1e-5)


@pytest.mark.parametrize("host", ["n3", "n7"])
def test_an_aim_is_what_the_declared_effects_say(found, host):
    half = 0.7 * state(found, LOST, host) + 0.3 * healthy(found)
    belief = with_belief(found, half).belief
    episodes = stand(found.model.with_layout(found.universe.layout), STANDING)
    believe(episodes, belief.network, belief.vector)
    moves, node = episodes.world.moves, found.universe.hosts.index(host)
    for other in range(found.universe.layout.nodes):
        move = moves.number("isolate_node", other)
        aim = aim_of(belief, moves.table, move)
        if other != node:
            assert aim is None
            continue
        assert (aim.mode, aim.kind, aim.site) == (LOST.partition(".")[0], "node", node)
        assert aim.probability == pytest.approx(0.7)
        assert aim.ends == pytest.approx(0.99)
        assert episodes.outlook.cures[0, move] == pytest.approx(0.7 * 0.99)
    assert aim_of(belief, moves.table, 0) is None


def test_a_poisoned_copy_is_ended_by_no_restart_that_loads_it(found):
    network = found.belief.network
    block = next(b for b in network.blocks if b.chain.law.copies)
    counts = np.array([c.poisoned for c in block.chain.configurations])
    belief = with_belief(found, state(found, block.variant.name, None, int(np.flatnonzero(counts == 1)[0]))).belief
    episodes = stand(found.model.with_layout(found.universe.layout), STANDING)
    moves = episodes.world.moves
    newest, older = (aim_of(belief, moves.table, moves.number("roll_back", k)) for k in (0, 1))
    assert newest is None
    assert older.mode == block.variant.mode
    assert older.probability == pytest.approx(1.0)
    assert older.ends > 0.0


# ---------------------------------------------------------------- what the logs say of the job


@pytest.mark.parametrize("kind", [MOVING, HALTED, DOWN])
def test_the_class_of_the_job_is_the_likeliest_by_the_belief(found, kind):
    network, step = found.belief.network, 3
    block, c = next(
        (b, c)
        for b in network.blocks
        for c, configuration in enumerate(b.chain.configurations)
        if not b.variant.benign and b.classes[c, step] == kind and (configuration.age > 1 or kind != HALTED)
    )
    vector = 0.6 * state(found, block.variant.name, None, c) + 0.4 * healthy(found)
    job = read_job(with_belief(found, vector))
    assert job.job_class == kind
    assert job.probability == pytest.approx(1.0 if kind == MOVING else 0.6)
    assert job.halted == pytest.approx(block.chain.configurations[c].age if kind == HALTED else 0.0)
    assert (job.phase, job.told, job.saved) == ("step", False, None)


def mark(time, phase, order, clock="wall"):
    return PhaseMark("train.log", order, time, order, phase, phase, "x", clock)


@pytest.mark.parametrize(
    ("marks", "phase", "saved"),
    [
        ([(100.0, "load"), (200.0, "step")], "step", None),
        ([(100.0, "step"), (200.0, "save"), (230.0, "step")], "step", 770.0),
        ([(200.0, "save"), (230.0, "step"), (500.0, "save")], "save", 770.0),  # the second one has not ended
        ([(500.0, "save")], "save", None),
    ],
)
def test_phase_and_age_of_the_copy_are_those_of_the_last_marks(found, marks, phase, saved):
    readings = [found.ingested.readings[0]._replace(time=1000.0)]
    phases = [mark(time, name, order) for order, (time, name) in enumerate(marks)]
    job = read_job(
        dataclasses.replace(found, ingested=dataclasses.replace(found.ingested, readings=readings, phases=phases))
    )
    assert (job.phase, job.told, job.saved) == (phase, True, saved)


# ---------------------------------------------------------------- what it answers


@pytest.mark.parametrize("host", ["n3", "n7"])
def test_the_agent_ends_the_failure_on_the_host_that_the_logs_name(found, agent, host):
    diagnosed = with_belief(found, 0.9 * state(found, LOST, host) + 0.1 * healthy(found))
    told = Adviser(agent).advise(diagnosed)
    best, mode = told.moves[0], LOST.partition(".")[0]
    assert best.target == f"node {host}"
    assert (best.aim.mode, best.aim.place) == (mode, f"node {host}")
    assert best.aim.probability == pytest.approx(0.9)
    assert best.ends == pytest.approx(0.9 * best.aim.ends, rel=1e-6)
    assert len(told.moves) == 3
    assert [move.probability for move in told.moves] == sorted((m.probability for m in told.moves), reverse=True)
    assert sum(move.probability for move in told.moves) <= 1.0 + 1e-9
    assert told.no_failure == pytest.approx(0.1)
    advised = advise(diagnosed)
    (same,) = [option for option in advised.options if option.name == best.action]
    assert best.ends == pytest.approx(same.clears, rel=1e-6)
    assert best.ends == pytest.approx(advised.best.clears, abs=1e-6)  # the greedy agent finds what clears most
    assert told.because.startswith(f"0.90 that {mode} on node {host}; {best.action}, node {host} ends it with 0.")


def test_costs_are_the_published_ones_in_minutes(found, agent):
    """A restart is the start itself and the work since the newest copy; what is isolated is missed beside."""
    diagnosed = with_belief(found, state(found, LOST, "n7"))
    spec = found.model.spec
    start = spec.job.launch_seconds + spec.job.init_comm_seconds + spec.job.load_seconds
    work = spec.job.save_every_seconds / 2.0
    away = min(2 * 3600.0, spec.economy.repair_seconds) / found.universe.layout.nodes
    costs = {move.action: move.minutes for move in Adviser(agent).advise(diagnosed).moves}
    assert costs["isolate_node"] == pytest.approx((start + work + away) / 60.0, abs=0.6)
    assert costs["move_to_spare"] > (start + work) / 60.0


def test_a_healthy_job_is_waited_for(found, agent):
    told = Adviser(agent).advise(with_belief(found, healthy(found)))
    assert told.moves[0].action == "wait"
    assert told.moves[0].minutes == 0.0
    assert told.moves[0].aim is None
    assert told.because == ">0.99 that nothing fails; wait ends nothing, costs nothing in itself"


def test_one_that_waits_although_something_fails_is_told_what_would_help(found, tmp_path):
    told = Adviser(kept(tmp_path / "calm", made())).advise(with_belief(found, state(found, LOST, "n7")))
    assert told.moves[0].action == "wait"
    assert told.most.target == "node n7"
    assert "wait ends nothing" in told.because
    assert f"{told.most.action}, node n7 ends it with" in told.because


def test_assumptions_tell_what_no_line_told(found, agent):
    assumed = "\n".join(Adviser(agent).advise(found).assumptions)
    for words in (
        "phase step, as no line tells",
        "half of the interval",
        "1 spare (assumed",
        "2 h of training",
        "ring",
    ):
        assert words in assumed
    given = Adviser(agent, spares=3).advise(found)
    assert "3 spares (as given)" in given.assumptions
    none = Adviser(agent, spares=0).advise(with_belief(found, state(found, LOST, "n7")))
    assert "move_to_spare" not in {move.action for move in none.moves if move.probability > 0.0}


def test_the_same_question_has_the_same_answer(found, agent):
    adviser = Adviser(agent)
    assert adviser.advise(found) == adviser.advise(found) == Adviser(agent).advise(found)


def test_the_diagnosis_stays_as_it_was(found, agent):
    before = found.belief.vector.copy()
    Adviser(agent).advise(found)
    assert (found.belief.vector == before).all()


# ---------------------------------------------------------------- who cannot be asked


@pytest.mark.parametrize("observe", ["raw", "both", "truth"])
def test_who_observes_what_logs_do_not_hold_cannot_be_asked(tmp_path, observe):
    folder = kept(tmp_path / "mine", made(observe), observe)
    with pytest.raises(InvalidAgent, match=f"the agent observes {observe}, and of logs there is only a belief"):
        Adviser(folder)


def test_an_agent_of_another_model_cannot_be_asked(found, tmp_path):
    policy = made("raw")  # another number of columns
    with pytest.raises(InvalidAgent, match=r"made for .* and model reference has"):
        Adviser(kept(tmp_path / "mine", policy, "belief")).advise(found)


def test_a_model_without_costs_is_a_clear_error(found, agent):
    spec = found.model.spec.model_copy(update={"economy": None})
    with pytest.raises(InvalidModel, match="economy"):
        Adviser(agent).advise(dataclasses.replace(found, model=dataclasses.replace(found.model, spec=spec)))


def test_without_a_belief_there_is_nothing_to_say(found, agent):
    assert Adviser(agent).advise(dataclasses.replace(found, belief=None)) is None


# ---------------------------------------------------------------- how it is shown


def shown(dossier):
    screen = io.StringIO()
    show_diagnosis(dossier, Terminal(file=screen, width=100))
    return screen.getvalue()


def test_it_is_shown_apart_and_changes_nothing_else(found, agent):
    told = Adviser(agent).advise(with_belief(found, state(found, LOST, "n7")))
    without, beside = Dossier(found), Dossier(found, agent=told)
    plain, more = shown(without), shown(beside)
    begin = more.index("What agent ender would do next")
    own = re.match(r"(?:.*\S.*\n)+", more[begin:])[0]
    assert more.replace(own, "").split() == plain.split()
    assert all(move.action in more for move in told.moves)
    assert "What agent" not in plain
    json_without, json_beside = follow_ups(without), follow_ups(beside)
    assert json_without.pop("advice_of_agent") is None
    assert json_beside.pop("advice_of_agent") == to_json(told)
    assert json_without == json_beside
    assert "What an agent would do next" in page(beside)
    assert "What an agent would do next" not in page(without)


def test_names_of_agents_and_hosts_are_safe_to_show(found, agent):
    told = Adviser(agent).advise(found)
    nasty = dataclasses.replace(
        told, agent="\x1b[31m<b>", moves=[dataclasses.replace(told.moves[0], target="<i>\x1b[2J")]
    )
    assert "\x1b" not in shown(Dossier(found, agent=nasty))
    made_page = page(Dossier(found, agent=nasty))
    assert "<b>" not in made_page
    assert "<i>" not in made_page
    assert "\x1b" not in made_page


def test_episodes_of_an_incident_model_can_be_made(found):
    """The bridge stands on it: the model of logs has the actions and the economy of the environment."""
    assert Episodes(found.model, 1, Settings(observe="belief")).world.moves.count > 1
