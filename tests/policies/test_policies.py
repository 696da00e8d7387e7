"""Baseline policies: legal moves, stated diagnoses, the same worlds for all, and the order they are meant to have."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from clusterorch.causal.slices import MOVING
from clusterorch.environment.making import episodes_of
from clusterorch.errors import InvalidIntervention, InvalidModel
from clusterorch.policies.oracle import Oracle
from clusterorch.policies.plain import Random, Wait
from clusterorch.policies.prospects import FAR, move_costs, prospects_of
from clusterorch.policies.runbook import Runbook, RunbookFile, load_runbook
from clusterorch.policies.running import POLICIES, RUNBOOKS, observes, policy_named, run_policy
from clusterorch.policies.view import Choice, nothing_stated, view_of

PLAYED = {"layout": "2x2", "hours": 2.0}
COUNT = 48


@functools.cache
def runs(name):
    return run_policy(name, range(COUNT), **PLAYED)


def kept(name):
    return np.array([one["kept"] for one in runs(name)])


@pytest.mark.parametrize("name", POLICIES)
def test_moves_are_legal_and_a_diagnosis_is_stated(name):
    episodes = episodes_of(6, observe=observes(name), seed=3, **PLAYED)
    policy = policy_named(name, episodes)
    rows = np.arange(6)
    episodes.begin(rows, np.zeros(6, dtype=np.int64))
    modes = {"healthy", *(mode.name for mode in episodes.model.spec.mode)}
    for _ in range(40):
        view = view_of(episodes, truth=policy.needs == "truth")
        choice = policy.decide(view)
        assert view.masks[rows, choice.moves].all()
        assert set(choice.modes) <= modes
        assert ((choice.nodes >= -1) & (choice.nodes < 2)).all()
        assert not episodes.decide(choice.moves, np.ones(6, dtype=bool)).illegal.any()


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "random"])
def test_an_episode_does_not_depend_on_which_others_are_played(name):
    alone = run_policy(name, range(9, 11), **PLAYED)
    for one, among in zip(alone, runs(name)[9:11], strict=True):
        assert {k: v for k, v in one.items() if k != "recovery_latency"} == {
            k: v for k, v in among.items() if k != "recovery_latency"
        }


def test_all_policies_meet_the_same_first_failure():
    for name in ("qmdp", "oracle", "most_likely_cause"):
        for one, other in zip(runs("wait"), runs(name), strict=True):
            if one["incidents"] and not other["false_moves"]:
                first, met = one["incidents"][0], other["incidents"][0]
                assert (first["variant"], first["site"], first["slice"]) == (met["variant"], met["site"], met["slice"])


def test_the_truth_beats_beliefs_and_beliefs_beat_rules():
    assert kept("oracle").mean() > kept("wait").mean() + 10.0
    assert kept("oracle").mean() >= kept("qmdp").mean() - 5.0
    assert kept("most_likely_cause").mean() > max(kept(name).mean() for name in (*RUNBOOKS, "wait"))
    assert kept("random").mean() < kept("wait").mean() + 5.0
    assert kept("restart").mean() < kept("wait").mean() + 5.0


def test_the_oracle_puts_off_only_what_loses_work_and_nothing_is_worth_more_than_healthy_training():
    episodes = episodes_of(64, seed=4, overlays=("drill",), **PLAYED)
    oracle, moves = Oracle(episodes.model, episodes.settings.decision), episodes.world.moves
    rows, running, failing, met = np.arange(64), np.ones(64, dtype=bool), 0, 0
    episodes.begin(rows, np.zeros(64, dtype=np.int64))
    loads = moves.table.restarts[:-1] != 0
    while running.any():
        plan, state = oracle.plan(view_of(episodes, truth=True)), episodes.world.state
        assert plan.value[running].max() <= 0.0
        assert plan.worth[running].max() <= 0.0
        failing += int((running & (state.variant >= 0)).sum())
        acting = np.where(loads | (np.arange(moves.count) == 0), -np.inf, plan.worth).max(axis=1)
        restart = plan.worth[:, loads].max(axis=1)
        # No restart comes near such a move, not even one right after a copy.
        alone = (
            running & (state.variant >= 0) & (state.job_class == MOVING) & (acting > restart + episodes.every + 10.0)
        )
        for b in np.flatnonzero(alone):
            met += 1
            assert plan.worth[b, 0] <= acting[b] or plan.worth[b, 0] == pytest.approx(
                -if_nobody_acts(oracle, episodes, b)
            )
        running &= ~episodes.decide(np.zeros(64, dtype=np.int64), running).ended
    assert failing > 1000
    assert met > 20


def if_nobody_acts(oracle, episodes, b):
    """Slices that the failure costs until the end."""
    left = episodes.horizon - episodes.world.books.time[b]
    return float(oracle.prospects.ahead(np.array(float(left)))[episodes.world.state.variant[b]])


class Probe:
    """Plays one trick."""

    needs = "raw"

    def __init__(self, trick):
        self.name, self.trick = "probe", trick

    def decide(self, view):
        moves = np.zeros(len(view.time), dtype=np.int64)
        for b in range(len(moves)):
            wanted = self.trick(view, b)
            moves[b] = next((m for m in wanted if view.masks[b, m]), 0)
        return Choice(moves, *nothing_stated(len(moves)))


def isolate_all(view, b):
    return [view.moves.number("isolate_node", n) for n in range(view.network.layout.nodes)]


def restart_in_a_loop(view, b):
    return [view.moves.number("restart_rank", 0)]


def load_the_oldest(view, b):
    return [view.moves.number("roll_back", k) for k in (2, 1, 0)] if view.time[b] % 40 == 0 else []


def swap_before_any_evidence(view, b):
    return [view.moves.number("move_to_spare", n) for n in range(view.network.layout.nodes)] if view.time[b] < 8 else []


def turn_and_turn_again(view, b):
    return [view.moves.number("use_tree"), view.moves.number("use_ring")]


@pytest.mark.parametrize(
    "trick", [isolate_all, restart_in_a_loop, load_the_oldest, swap_before_any_evidence, turn_and_turn_again]
)
def test_tricks_do_not_pay(trick):
    episodes, rows = episodes_of(COUNT, observe="raw", **PLAYED), np.arange(COUNT)
    episodes.begin(rows, np.zeros(COUNT, dtype=np.int64))
    running, policy = np.ones(COUNT, dtype=bool), Probe(trick)
    while running.any():
        choice = policy.decide(view_of(episodes))
        running &= ~episodes.decide(np.where(running, choice.moves, 0), running).ended
    assert episodes.world.books.good.mean() < kept("wait").mean() - 2.0


def test_prospects_are_losses_that_grow_and_differ():
    episodes = episodes_of(1, observe="raw", **PLAYED)
    prospects = prospects_of(episodes.model)
    failing = np.array([not b.variant.benign for b in episodes.world.network.blocks])
    assert prospects.loss.shape == (len(failing), FAR + 1)
    assert (np.diff(prospects.loss[failing], axis=1).mean(axis=1) >= 0.0).all()
    assert (prospects.loss[failing, FAR] > 50.0).sum() > 20
    assert prospects.ahead(np.array(FAR)) == pytest.approx(prospects.loss[:, FAR])
    assert (prospects.ahead(np.array(2.0 * FAR))[failing] >= prospects.loss[failing, FAR] - 1e-9).all()
    costs = move_costs(episodes.model, episodes.world.moves, 400.0, np.array([7.0, 127.0, 247.0]), 1)
    label = [episodes.world.moves.label(m) for m in range(episodes.world.moves.count)]
    assert costs[label.index("wait")] == 0.0
    assert costs[label.index("roll_back:1")] - costs[label.index("roll_back:0")] == pytest.approx(120.0)
    assert costs[label.index("restart_rank:0")] == pytest.approx(17.0 + 7.0)


def test_what_a_policy_needs_is_said():
    raw = episodes_of(1, observe="raw", **PLAYED)
    with pytest.raises(InvalidIntervention, match="observe='belief'"):
        policy_named("qmdp", raw)
    with pytest.raises(InvalidIntervention, match="no policy is named 'genius'"):
        policy_named("genius", raw)
    with pytest.raises(InvalidIntervention, match="follow each other"):
        run_policy("wait", [0, 2], **PLAYED)
    assert Wait().needs == Random().needs == "raw"


@pytest.mark.parametrize("name", RUNBOOKS)
def test_runbooks_are_files_that_say_what_they_are(name):
    assert load_runbook(name).name == name
    assert load_runbook(name).rule


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"column": "xid.gone"}, "no column is named"),
        ({"action": "pray"}, "no action is named"),
        ({"states": "gremlins"}, "no mode is named"),
        ({"column": "class.down", "at": "node"}, "is not a column of nodes"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(change, said):
    rule = load_runbook("vendor").rule[0].model_dump() | change
    broken = Runbook(RunbookFile(name="broken", title="broken", patience=1, rule=[rule]))
    episodes = episodes_of(1, observe="raw", **PLAYED)
    episodes.begin(np.array([0]), np.array([0]))
    with pytest.raises(InvalidModel, match=said):
        broken.decide(view_of(episodes))


@pytest.mark.parametrize("text", ["name = 3", "name = 'x'\ntitle = 'x'\npatience = -1\nrule = []", "[[rule"])
def test_a_broken_runbook_file_is_refused(tmp_path, text):
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(InvalidModel):
        load_runbook(str(tmp_path / "mine.toml"))
    with pytest.raises(InvalidModel, match="there is none"):
        load_runbook("nothing")


def test_a_rule_may_wait_for_confirmation_and_then_rests():
    rule = load_runbook("vendor").rule[0].model_dump() | {"column": "phase.step", "at": "job", "action": "use_tree"}
    book = RunbookFile(name="calm", title="calm", patience=2, rule=[rule | {"repeats": 3}])
    episodes = episodes_of(1, observe="raw", **PLAYED)
    episodes.begin(np.array([0]), np.array([0]))
    policy, moves = Runbook(book), []
    for _ in range(6):
        moves.append(int(policy.decide(view_of(episodes)).moves[0]))
        episodes.decide(np.array([0]), np.array([True]))
    tree = episodes.world.moves.number("use_tree")
    assert moves == [0, 0, tree, 0, 0, tree]
