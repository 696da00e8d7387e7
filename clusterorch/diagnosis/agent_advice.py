"""Here lives what a trained agent would do next about a diagnosis: a record of its own, beside the diagnosis."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

DECIDED = 0.5  # probability of no failure from which on nothing is taken to be the matter
_FREE = 0.5  # minutes below which a move costs nothing


@dataclass(frozen=True)
class Aimed:
    """A failure, where it is (empty: nowhere in particular), and how probable it is there.

    ends: probability that the move which is aimed at it then ends it; 0 without one.
    """

    mode: str
    place: str
    probability: float
    ends: float = 0.0

    @property
    def words(self) -> str:
        """How much of what is believed, and where."""
        return f"{share(self.probability)} that {self.mode}{f' on {self.place}' if self.place else ''}"


@dataclass(frozen=True)
class Considered:
    """A move.

    target: in the words of the logs.  probability: of the agent's policy.  ends: probability that there is a failure
    and the move ends it.  minutes: of training that it costs in itself, by the published rules.
    aim: the failure of which it ends most, None if it ends nothing.
    """

    action: str
    title: str
    target: str
    probability: float
    ends: float
    minutes: float
    aim: Aimed | None

    @property
    def words(self) -> str:
        """The move and what it is made on."""
        return f"{self.action}, {self.target}" if self.target else self.action

    @property
    def does(self) -> str:
        """What it ends and costs."""
        ends = "ends nothing" if self.aim is None else f"ends it with {share(self.aim.ends)}"
        return f"{ends}, {cost_words(self.minutes)}"


@dataclass(frozen=True)
class AgentAdvice:
    """What an agent would do next.

    agent: its name.  moves: the likeliest of its policy, likeliest first.  most: the legal move that would end most.
    leading: the likeliest failure.  no_failure: probability that there is none, benign disturbances included.
    assumptions: what the agent was shown that no line tells.
    """

    agent: str
    moves: list[Considered]
    most: Considered
    leading: Aimed
    no_failure: float
    assumptions: list[str]

    @property
    def because(self) -> str:
        """Why, in a sentence."""
        best = self.moves[0]
        healthy = self.no_failure >= DECIDED
        believed = f"{share(self.no_failure)} that nothing fails" if healthy else self.leading.words
        if best.aim is None:
            said = f"{believed}; {best.words} {best.does}"
            if healthy or self.most.aim is None:
                return said
            return f"{said}; {self.most.words} {self.most.does}, and has {share(self.most.probability)} of the policy"
        if not healthy and best.aim.mode == self.leading.mode:
            return f"{best.aim.words}; {best.words} {best.does}"
        return f"{believed}; {best.aim.words}; {best.words} {best.does}"


def share(p: float) -> str:
    """A probability in two digits that never rounds to certainty.

    >>> share(0.931), share(1.0), share(0.0001), share(0.0)
    ('0.93', '>0.99', '<0.01', '0')
    """
    if p <= 0.0:
        return "0"
    if p < 0.005:
        return "<0.01"
    return ">0.99" if p >= 0.995 else f"{p:.2f}"


def cost_words(minutes: float) -> str:
    """What a move costs in itself.

    >>> cost_words(14.2), cost_words(0.0)
    ('costs 14 min', 'costs nothing in itself')
    """
    return f"costs {minutes:.0f} min" if minutes >= _FREE else "costs nothing in itself"


def to_json(told: AgentAdvice) -> dict[str, Any]:
    """The key `advice_of_agent` of schema `clusterorch.diagnosis/1`."""
    return {
        "agent": told.agent, "because": told.because, "no_failure": told.no_failure,
        "leading": {"mode": told.leading.mode, "place": told.leading.place, "probability": told.leading.probability},
        "moves": [asdict(move) for move in told.moves], "ends_most": asdict(told.most),
        "assumptions": told.assumptions,
    }  # fmt: skip
