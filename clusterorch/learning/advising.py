"""Here lives a trained agent that is asked about real logs: what it would do next, from the diagnosis of them.

It sees what the environment would show it: the belief of the diagnosis, and what is published of the job, as far as
logs tell that.  The rest is assumed, and every assumption is told.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clusterorch.causal.slices import HALTED
from clusterorch.diagnosis.advice import target_label
from clusterorch.diagnosis.agent_advice import AgentAdvice, Aimed, Considered, share
from clusterorch.diagnosis.diagnose import HEALTHY, Diagnosis
from clusterorch.diagnosis.job_state import JobState, read_job
from clusterorch.diagnosis.universe import Universe
from clusterorch.environment.episodes import Episodes
from clusterorch.environment.standing import Standing, believe, stand
from clusterorch.errors import InvalidAgent
from clusterorch.inference.beliefs import Belief
from clusterorch.learning.agents import load_agent
from clusterorch.learning.playing import Learned, agent_name, agent_observes, check_fit
from clusterorch.learning.seeing import published_costs
from clusterorch.models.spec import JOB_CLASSES
from clusterorch.policies.aims import Aim, aim_of, place_of_mode
from clusterorch.policies.view import view_of

MOST_MOVES = 3
SPARES = 1  # of a site, as in training
_HOURS = 4.0  # that an episode lasts, if the agent does not say how long its own were


class Adviser:
    """An agent that can be asked about diagnoses.

    Args:
        folder: of the agent; it must decide on beliefs.
        spares: nodes that stand by; `SPARES` is assumed if not given.

    Raises:
        InvalidAgent: there is none, it is broken, or it observes what logs do not hold.
    """

    def __init__(self, folder: Path, *, spares: int | None = None) -> None:
        if (observe := agent_observes(folder)) != "belief":
            raise InvalidAgent(
                f"{folder}: the agent observes {observe}, and of logs there is only a belief; give one that was "
                "trained with --observe belief"
            )
        self.folder, self.spares, self.name = folder, spares, agent_name(folder)
        self.policy, config = load_agent(folder)
        hours = config["run"].get("hours")
        self.hours = float(hours) if isinstance(hours, int | float) and 0.0 < hours <= 240.0 else _HOURS

    def advise(self, diagnosis: Diagnosis) -> AgentAdvice | None:
        """What the agent would do next; None without a belief.

        Raises:
            InvalidModel: the model declares no costs of moves.
            InvalidAgent: the agent was trained on another model.
        """
        belief, universe = diagnosis.belief, diagnosis.universe
        if belief is None or universe is None:
            return None
        job = read_job(diagnosis)
        episodes = self._standing(diagnosis, universe, job)
        believe(episodes, belief.network, belief.vector)
        view = view_of(episodes)
        check_fit(self.folder, self.policy, episodes, "belief")
        logits = Learned(self.policy, episodes, observe="belief").read(view).logits[0]
        policy = logits.double().softmax(-1).numpy()
        minutes = published_costs(episodes)[0] * belief.network.spec.model.slice_seconds / 60.0
        ends = np.where(view.masks[0] == 1, episodes.outlook.cures[0], -1.0)
        likeliest = np.argsort(-policy, kind="stable")[:MOST_MOVES]
        moves = {
            int(move): _considered(belief, universe, episodes, int(move), float(policy[move]), float(minutes[move]))
            for move in {*likeliest.tolist(), int(ends.argmax())}
        }
        failures = {mode: p for mode, p in belief.modes.items() if mode != HEALTHY}
        leading = max(failures, key=lambda mode: failures[mode])
        place = _place(universe, *place_of_mode(belief, leading))
        return AgentAdvice(
            self.name, [moves[int(move)] for move in likeliest if policy[move] > 0.0], moves[int(ends.argmax())],
            Aimed(leading, place, failures[leading]), belief.modes[HEALTHY], self._assumptions(episodes, job, universe),
        )  # fmt: skip

    def _standing(self, diagnosis: Diagnosis, universe: Universe, job: JobState) -> Episodes:
        """The episode that shows what is published: half of it is over."""
        model = diagnosis.model.with_layout(universe.layout)
        dt, every = model.spec.model.slice_seconds, model.spec.job.save_every_seconds
        newest = every / 2.0 if job.saved is None else job.saved
        ages = tuple(round((newest + k * every) / dt) for k in range(universe.layout.copies))
        played = max(1, round(self.hours * 1800.0 / dt))
        spares = SPARES if self.spares is None else self.spares
        return stand(
            model, Standing(job.phase, job.job_class, round(job.halted), ages, spares, played, self.hours)
        )  # fmt: skip

    def _assumptions(self, episodes: Episodes, job: JobState, universe: Universe) -> list[str]:
        """What is read out of the belief or made up, in sentences."""
        spec, books = episodes.world.network.spec, episodes.world.books
        minutes = spec.model.slice_seconds / 60.0
        said = "" if job.told else ", as no line tells another"
        halted = f" for {job.halted * minutes:.1f} min" if job.job_class == HALTED else ""
        kind = f"{JOB_CLASSES[job.job_class]}{halted} ({share(job.probability)} by the belief)"
        age = -float(books.copy_time[0, 0] - books.time[0]) * minutes
        saves = "half of the interval, as no line tells of a save" if job.saved is None else "from the last save told"
        spares = int(books.spares[0])
        stood = "assumed; give --spares" if self.spares is None else "as given"
        return [
            f"the job is in phase {job.phase}{said}, and {kind}",
            f"{len(books.copy_time[0])} copies are held, the newest {age:.0f} min old ({saves})",
            f"{spares} spare{'' if spares == 1 else 's'} ({stood})",
            f"{len(universe.hosts) + 1} nodes, those that lines name and one for all others, all at work on a ring",
            "every collector has just been heard",
            f"{self.hours / 2.0:g} h of training are left, and the agent remembers nothing from before",
        ]


def _considered(
    belief: Belief, universe: Universe, episodes: Episodes, move: int, policy: float, minutes: float
) -> Considered:
    moves = episodes.world.moves
    name, target = moves.names[move]
    action = next(a for a in belief.network.spec.action if a.name == name)
    aim = aim_of(belief, moves.table, move)
    words = "" if action.target in ("none", "job") else target_label(action.target, target, universe)
    return Considered(
        name, action.title, words, policy, float(episodes.outlook.cures[0, move]), minutes,
        None if aim is None else _aimed(universe, aim),
    )  # fmt: skip


def _aimed(universe: Universe, aim: Aim) -> Aimed:
    return Aimed(aim.mode, _place(universe, aim.kind, aim.site), aim.probability, aim.ends)


def _place(universe: Universe, kind: str, site: int) -> str:
    """What to call a place; nothing if there is one of its kind, and it has no name."""
    told = kind and (universe.layout.count(kind) > 1 or (kind, site) in universe.names)
    return universe.label(kind, site) if told else ""
