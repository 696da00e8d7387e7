"""Here lives the dossier: a diagnosis with what follows from it, for the views and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from clusterorch.diagnosis.advice import Advice, Option, advise
from clusterorch.diagnosis.agent_advice import AgentAdvice
from clusterorch.diagnosis.agent_advice import to_json as of_agent
from clusterorch.diagnosis.commands import Command
from clusterorch.diagnosis.contexts import Context, contexts_of
from clusterorch.diagnosis.diagnose import HEALTHY, Diagnosis, ranked_weights
from clusterorch.diagnosis.incidents import Incidents, ends, two_incidents
from clusterorch.diagnosis.settling import Offer, settle

DECIDED = 0.5  # below this no verdict is stated
HEALTHY_CODE, FAULT_CODE, UNDECIDED_CODE = 0, 1, 3


@dataclass(frozen=True)
class Dossier:
    """A diagnosis; commands by what they are expected to tell; the advised action; lines among their neighbours.

    `incidents`: where the logs more probably hold two failures than one.
    `agent`: what a trained agent would do next, if one was asked; it is no part of the diagnosis.
    """

    diagnosis: Diagnosis
    offers: list[Offer] = field(default_factory=list)
    advice: Advice | None = None
    contexts: list[Context] = field(default_factory=list)
    incidents: Incidents | None = None
    agent: AgentAdvice | None = None

    @property
    def decided(self) -> bool:
        """Whether one mode, or healthy, is at least as probable as all others together, and some line says so."""
        return bool(self.diagnosis.weights) and self.diagnosis.modes[self.diagnosis.leading] >= DECIDED

    @property
    def exit_code(self) -> int:
        """For scripts: 0 healthy, 1 a failure, 3 undecided or nothing told."""
        if not self.decided:
            return UNDECIDED_CODE
        return HEALTHY_CODE if self.diagnosis.leading == HEALTHY else FAULT_CODE


def open_dossier(
    diagnosis: Diagnosis, commands: Sequence[Command], paths: Sequence[Path] = (), *, top: int = 5,
    protocol: str = "auto",
) -> Dossier:  # fmt: skip
    """Everything that follows from a diagnosis.

    Args:
        diagnosis: as `diagnose` gives it.
        commands: those that could be run, from `load_commands`.
        paths: what was read, to read the lines around the strongest ones again.
        top: how many lines for the leading mode, and how many against it, are shown among their neighbours.
        protocol: under which the diagnosis was made.
    """
    leading, ranked = diagnosis.leading, ranked_weights(diagnosis)
    strongest = [w.reading for w in ranked if w.change[leading] > 0.0][:top]
    strongest += [w.reading for w in ranked if w.change[leading] < 0.0][:top]
    contexts = contexts_of(strongest, list(paths))
    incidents = two_incidents(diagnosis, protocol="auto" if protocol == "covered" else protocol)
    return Dossier(diagnosis, settle(diagnosis, commands), advise(diagnosis), contexts, incidents)


def follow_ups(dossier: Dossier) -> dict[str, object]:
    """The keys beside the diagnosis of schema `clusterorch.diagnosis/1`: what to gather, what to do, and contexts."""
    return {
        "settle": [_offer(offer) for offer in dossier.offers],
        "advice": None if dossier.advice is None else _advice(dossier.advice),
        "contexts": [_context(context) for context in dossier.contexts],
        "incidents": None if dossier.incidents is None else _incidents(dossier.incidents),
        "advice_of_agent": None if dossier.agent is None else of_agent(dossier.agent),
    }


def _incidents(found: Incidents) -> dict[str, object]:
    return {
        "probability": found.probability,
        "parts": [
            {
                "leading": part.leading, "probability": part.modes[part.leading], "modes": part.modes,
                "site": part.sites[0][1] if part.sites else None,
                "from": {"file": first.file, "line": first.line, "time": first.time},
                "to": {"file": last.file, "line": last.line, "time": last.time},
            }
            for part in (found.first, found.second)
            for first, last in (ends(part),)
        ],
    }  # fmt: skip


def _offer(offer: Offer) -> dict[str, object]:
    command = offer.command
    return {
        "command": command.name, "title": command.title, "shell": command.shell, "runs_on": command.runs_on,
        "hosts": [{"host": s.host, "probability": s.probability, **s.names} for s in offer.suspects],
        "streams": command.streams, "signals": command.signals,
        "gain_nats": offer.gain, "error_nats": offer.error,
        "outcomes": [
            {
                "signal": o.what, "entity": o.entity, "shows": o.shows, "probability": o.probability,
                "leading": o.leading, "leading_then": o.now, "leads": o.leads, "leads_then": o.then,
            }
            for o in offer.outcomes
        ],
    }  # fmt: skip


def _advice(advice: Advice) -> dict[str, object]:
    return {
        "action": advice.best.name, "waits": advice.waits, "no_failure": advice.no_failure,
        **{key: value for key, value in _option(advice.best).items() if key != "action"},
        "options": [_option(option) for option in advice.options],
    }  # fmt: skip


def _option(option: Option) -> dict[str, object]:
    return {
        "action": option.name, "title": option.title, "target": option.target, "cost": option.cost,
        "clears": option.clears, "left": option.left,
    }  # fmt: skip


def _context(context: Context) -> dict[str, object]:
    return {
        "file": context.file, "line": context.line, "text": context.text,
        "before": [text for _, text in context.before], "after": [text for _, text in context.after],
    }  # fmt: skip
