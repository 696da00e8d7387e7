"""Training: ratios of the first epoch are one, a stopped run goes on to the same weights, what is broken is refused."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from clusterorch.environment.making import episodes_of
from clusterorch.errors import ClusterorchError, InvalidAgent, OutputExists
from clusterorch.learning.agents import CONFIG, WEIGHTS, load_agent, save_agent
from clusterorch.learning.instances import Cluster
from clusterorch.learning.network import Policy
from clusterorch.learning.playing import Learned
from clusterorch.learning.ppo import Schedule, loss_of, new_group, play, take, update
from clusterorch.learning.seeing import inputs_of, move_index, shape_of
from clusterorch.learning.team import Team
from clusterorch.learning.training import Run, Trainer
from clusterorch.policies.view import view_of

SMALL = Run(
    layouts=("1x2",), steps=4 * 4 * 8, instances=4, hours=0.1, width=32, evaluate_every=2, evaluated=2,
    schedule=Schedule(length=8, epochs=2, minibatches=2),
)  # fmt: skip


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def weights(trainer):
    parts = [value.detach().numpy().tobytes() for value in trainer.policy.state_dict().values()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def made(observe="belief", memory="attention", layout="1x2"):
    torch.manual_seed(0)
    episodes = episodes_of(4, layout=layout, hours=0.2, observe=observe, seed=2)
    policy = Policy(shape_of(episodes, critic=True, width=32, memory=memory))
    return policy, new_group(policy, Cluster(episodes))


@pytest.mark.parametrize("observe", ["raw", "belief", "both", "truth"])
@pytest.mark.parametrize("memory", ["attention", "recurrent", "recent"])
def test_ratios_of_the_first_epoch_are_one(observe, memory):
    policy, group = made(observe, memory)
    schedule, draws = Schedule(length=16), torch.Generator().manual_seed(1)
    for _ in range(3):  # later segments begin in the middle of episodes
        segment = play(policy, group, schedule, draws)
        assert segment.moves.shape == (4, 16)
        with torch.no_grad():
            nodes, rows = policy.rows(segment.inputs)
            hidden, _ = policy.memory.segment(rows, segment.begun, segment.state)
            reading = policy.read(segment.inputs, nodes, hidden, segment.index)
            logs = reading.logits.log_softmax(-1).gather(-1, segment.moves[..., None])[..., 0]
            assert (logs - segment.log_p).exp().sub(1.0).abs().max() < 1e-5
            torch.testing.assert_close(reading.value, segment.values, rtol=0, atol=1e-5)


def test_an_update_moves_towards_what_was_better():
    policy, group = made()
    schedule = Schedule(length=16, imitation=0.0, regret=0.0, entropy=0.0, entropy_at_last=0.0, rate=1e-3)
    segment = play(policy, group, schedule, torch.Generator().manual_seed(1))
    better = torch.zeros_like(segment.advantages)
    better[segment.moves != 0] = 1.0
    if not (segment.moves != 0).any():
        better[:, 3] = 1.0
    segment = segment._replace(advantages=better)
    chosen = better > 0.0
    optimiser = torch.optim.Adam(policy.parameters(), lr=1e-3)

    def mean_log_p():
        with torch.no_grad():
            nodes, rows = policy.rows(segment.inputs)
            hidden, _ = policy.memory.segment(rows, segment.begun, segment.state)
            logs = policy.read(segment.inputs, nodes, hidden, segment.index).logits.log_softmax(-1)
            return float(logs.gather(-1, segment.moves[..., None])[..., 0][chosen].mean())

    before = mean_log_p()
    update(policy, optimiser, [segment], [group], schedule, 0.0, torch.Generator().manual_seed(2), Team())
    assert mean_log_p() > before


def test_the_diagnosis_head_teaches_the_rest_nothing():
    policy, group = made()
    segment = play(policy, group, Schedule(length=8), torch.Generator().manual_seed(1))
    nodes, rows = policy.rows(segment.inputs)
    hidden, _ = policy.memory.segment(rows, segment.begun, segment.state)
    policy.read(segment.inputs, nodes, hidden, segment.index).modes.sum().backward()
    moved = {name for name, p in policy.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    assert moved == {name for name, _ in policy.named_parameters() if name.startswith("modes.")}


def test_one_set_of_weights_runs_on_every_layout_and_nodes_are_alike():
    policy, _ = made()
    for layout in ("1x4", "2x2", "4x2"):
        episodes = episodes_of(2, layout=layout, hours=0.1, observe="belief")
        episodes.begin(np.arange(2), np.zeros(2, dtype=np.int64))
        learned = Learned(policy, episodes)
        choice = learned.decide(view_of(episodes))
        assert (view_of(episodes).masks[np.arange(2), choice.moves] == 1).all()
    inputs, index = inputs_of(episodes, critic=True), move_index(episodes)
    order = torch.tensor([2, 0, 3, 1])
    turned = inputs._replace(nodes=inputs.nodes[:, order])
    with torch.no_grad():
        results = []
        for one in (inputs, turned):
            nodes, row = policy.rows(one)
            hidden, _ = policy.memory.step(row, torch.ones(2, dtype=torch.bool), policy.memory.fresh(2))
            results.append(policy.read(one, nodes, hidden, index))
    torch.testing.assert_close(results[0].value, results[1].value, rtol=0, atol=1e-5)
    isolate = [episodes.world.moves.number("isolate_node", n) for n in range(4)]
    wanted = results[0].logits[:, isolate][:, order]
    torch.testing.assert_close(results[1].logits[:, isolate], wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_run_that_was_stopped_goes_on_to_the_same_weights(tmp_path, after):
    whole = Trainer(SMALL, tmp_path / "whole")
    for _ in range(whole.updates):
        whole.step()
    stopped = Trainer(SMALL, tmp_path / "stopped")
    for _ in range(after):
        stopped.step()
    stopped.save()
    again = Trainer.resume(tmp_path / "stopped")
    assert (again.update, again.decisions) == (after, stopped.decisions)
    for _ in range(whole.updates - after):
        again.step()
    assert weights(again) == weights(whole)
    assert again.update == whole.update == 4


def test_two_runs_of_one_seed_are_the_same_and_another_seed_is_another(tmp_path):
    runs = [Trainer(replace(SMALL, seed=seed), tmp_path / str(i)) for i, seed in enumerate((0, 0, 1))]
    for run in runs:
        run.step()
    assert weights(runs[0]) == weights(runs[1]) != weights(runs[2])


def test_an_agent_is_written_whole_and_read_again(tmp_path):
    policy, _ = made()
    folder = save_agent(tmp_path / "agent", policy, {"observe": "belief"}, "# card\n")
    assert sorted(file.name for file in folder.iterdir()) == ["README.md", CONFIG, WEIGHTS]
    again, config = load_agent(folder)
    assert config["observe"] == "belief"
    for name, value in policy.state_dict().items():
        assert torch.equal(again.state_dict()[name], value)
    with pytest.raises(OutputExists, match="--force"):
        save_agent(folder, policy, {}, "")
    assert [path.name for path in tmp_path.iterdir()] == ["agent"]


def _truncated(folder):
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[: len(data) // 2])


def _older(folder):
    (folder / CONFIG).write_text(json.dumps(json.loads((folder / CONFIG).read_text()) | {"version": 0}))


def _wider(folder):
    config = json.loads((folder / CONFIG).read_text())
    config["shape"]["width"] = 64
    (folder / CONFIG).write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (_truncated, "take an earlier checkpoint"),
        (_older, "version 0"),
        (_wider, "has shape"),
        (lambda folder: (folder / CONFIG).write_text("{"), "not JSON"),
        (lambda folder: (folder / WEIGHTS).unlink(), "no such file"),
    ],
)
def test_a_broken_agent_is_refused(tmp_path, broken, said):
    policy, _ = made()
    folder = save_agent(tmp_path / "agent", policy, {}, "")
    broken(folder)
    with pytest.raises(InvalidAgent, match=said):
        load_agent(folder)


def test_all_files_of_an_agent_may_be_read_by_the_same(tmp_path):
    folder = save_agent(tmp_path / "agent", made()[0], {}, "")
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1


def test_a_write_that_fails_leaves_the_agent_of_before(tmp_path, monkeypatch):
    policy, _ = made()
    folder = save_agent(tmp_path / "agent", policy, {"number": 1}, "")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("clusterorch.learning.agents.save", full)
    with pytest.raises(ClusterorchError, match=r"No space.*before is whole"):
        save_agent(folder, policy, {"number": 2}, "", force=True)
    assert load_agent(folder)[1]["number"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["agent"]


def test_unknown_keys_and_numbers_that_are_none_are_refused(tmp_path):
    with pytest.raises(InvalidAgent, match="unknown key 'magic'"):
        Run.parse({"magic": 1})
    with pytest.raises(InvalidAgent, match="overlays is 'drill': give a list of names"):
        Run.parse({"overlays": "drill"})
    with pytest.raises(InvalidAgent, match="unknown key 'luck'"):
        Run.parse({"schedule": {"luck": 1}})
    with pytest.raises(InvalidAgent, match="No such file"):
        Trainer.resume(tmp_path / "nothing")
    trainer = Trainer(SMALL, tmp_path / "run")
    trainer.clusters[0].episodes.window.job_rows[:] = np.nan
    with pytest.raises(InvalidAgent, match="no finite number"):
        trainer.step()


def test_a_run_can_begin_with_the_weights_of_an_agent(tmp_path):
    first = Trainer(SMALL, tmp_path / "first")
    first.step()
    agent = first.keep("agent", None)
    run = replace(SMALL, begin=str(agent))
    second = Trainer(run, tmp_path / "second")
    assert weights(second) == weights(first)
    second.step()
    second.save()
    (agent / WEIGHTS).unlink()
    assert weights(Trainer.resume(tmp_path / "second")) == weights(second)
    with pytest.raises(InvalidAgent, match="no such file"):
        Trainer(run, tmp_path / "third")


def laid_over(episodes):
    return [path.stem for path in episodes.model.overlays]


def test_overlays_are_laid_over_training_and_not_over_validation(tmp_path, monkeypatch):
    trainer = Trainer(replace(SMALL, overlays=("drill",)), tmp_path / "run")
    assert [laid_over(cluster.episodes) for cluster in trainer.clusters] == [["episode", "drill"]]
    validated = []

    def noted(name, numbers, **arguments):
        validated.append(laid_over(episodes_of(1, **{k: v for k, v in arguments.items() if k != "make"})))
        return [{"kept": 1.0} for _ in numbers]

    monkeypatch.setattr("clusterorch.learning.training.run_policy", noted)
    trainer.shares()
    assert validated == [["episode"]] * 4
    assert Run.parse(json.loads(json.dumps({"overlays": ["drill"]}))) == Run(overlays=("drill",))


def test_a_reward_that_is_no_number_is_refused_before_anything_is_learned(tmp_path, monkeypatch):
    trainer = Trainer(SMALL, tmp_path / "run")
    trainer.step()
    trainer.save()
    before, decide = weights(trainer), trainer.clusters[0].decide

    def broken(moves):
        played = decide(moves)
        return played._replace(reward=played.reward * np.nan)

    monkeypatch.setattr(trainer.clusters[0], "decide", broken)
    with pytest.raises(InvalidAgent, match=r"rewards or values.*the last checkpoint is whole"):
        trainer.step()
    assert weights(trainer) == before == weights(Trainer.resume(tmp_path / "run"))


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    trainer = Trainer(SMALL, tmp_path / "run")
    trainer.step()
    trainer.save()
    kept = weights(trainer)
    trainer.step()

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("clusterorch.learning.agents.save", full)
        with pytest.raises(ClusterorchError, match=r"last cannot be written: .*No space left"):
            trainer.save()
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {"best", "last"}
    assert weights(Trainer.resume(tmp_path / "run")) == kept


def test_a_prior_is_the_log_of_what_the_belief_says_that_a_move_ends():
    policy, group = made()
    episodes = group.instances.episodes
    shape = replace(policy.shape, prior=2.0)
    leaning = Policy(shape)
    leaning.load_state_dict(policy.state_dict())
    inputs = inputs_of(episodes, critic=True)
    with torch.no_grad():
        found = []
        for one in (policy, leaning):
            nodes, row = one.rows(inputs)
            hidden, _ = one.memory.step(row, torch.ones(4, dtype=torch.bool), one.memory.fresh(4))
            found.append(one.read(inputs, nodes, hidden, move_index(episodes)).logits)
    legal = inputs.masks[:, 1:]
    apart = (found[1] - found[0])[:, 1:][legal]
    cures = torch.tensor(episodes.outlook.cures[:, 1:])[legal]
    torch.testing.assert_close(apart, 2.0 * torch.log(cures + 1e-4), rtol=1e-4, atol=1e-4)
    assert torch.equal(found[0][:, 0], found[1][:, 0])
    with pytest.raises(InvalidAgent, match="observes raw has no belief"):
        shape_of(episodes_of(1, layout="1x2", observe="raw"), critic=True, prior=1.0)


def test_a_segment_can_be_taken_apart():
    policy, group = made()
    schedule = Schedule(length=8)
    segment = play(policy, group, schedule, torch.Generator().manual_seed(1))
    rows = torch.tensor([3, 1])
    part = take(segment, rows)
    assert torch.equal(part.moves, segment.moves[rows])
    whole, _ = loss_of(policy, segment, segment.advantages, schedule, done=0.0, count=32)
    halves = [
        loss_of(policy, one, one.advantages, schedule, done=0.0, count=32)[0]
        for one in (take(segment, torch.tensor([0, 1])), take(segment, torch.tensor([2, 3])))
    ]
    assert float(whole.detach()) == pytest.approx(float(sum(halves).detach()), rel=1e-4)
