"""Here lives what would settle a diagnosis: commands by the information that they are expected to give.

The worth of a command is the mutual information between the failure mode and what it shows, given the evidence so far
(Lindley, On a measure of the information provided by an experiment, Annals of Mathematical Statistics 27, 1956):

    I(mode; y | evidence) = sum over y of p(y) KL(p(mode | y) || p(mode)), nats,

at most the entropy of the posterior over modes.  Summed exactly where few outcomes are possible, else averaged over
outcomes drawn with a fixed seed; every term is a divergence, so no estimate is negative.  What is
drawn does not depend on names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from clusterorch.diagnosis.commands import Command
from clusterorch.diagnosis.contiguous import contiguous_streams
from clusterorch.diagnosis.diagnose import Diagnosis
from clusterorch.diagnosis.histories import Histories, LineKind
from clusterorch.diagnosis.outlook import NOW, Outlook, Pair, look_out
from clusterorch.diagnosis.suspects import Suspect, suspects_of
from clusterorch.diagnosis.universe import HOSTED, Universe
from clusterorch.models.compile import Network
from clusterorch.models.rows import CHORUS, DISCRETE, KIND_OF_FAMILY
from clusterorch.models.spec import Signal

DRAWS, MOST_OUTCOMES = 600, 1024
MOST_PAIRS = 192  # things that one command is taken to show
TOLD = 2  # commands whose outcomes are told
_COUNTS = ("none", "1", "2 to 9", "10 to 99", "100 or more")
_FLOOR = 1e-300


@dataclass(frozen=True)
class Outcome:
    """What the most telling thing that a command shows may be, and where it would move the modes.

    probability: of the outcome.  leading, now: the mode that leads now, and its probability then.
    leads, then: the mode that would lead, and its probability.
    """

    what: str
    entity: str
    shows: str
    probability: float
    leading: str
    now: float
    leads: str
    then: float


@dataclass(frozen=True)
class Offer:
    """A command and its worth.  gain, error: nats, the error being one standard error; 0 if the sum is exact."""

    command: Command
    gain: float
    error: float
    suspects: list[Suspect]
    outcomes: list[Outcome]


def settle(diagnosis: Diagnosis, commands: Sequence[Command], *, draws: int = DRAWS, seed: int = 0) -> list[Offer]:
    """Commands by expected information about the mode, most first.

    A log is taken to hold all that was printed; what the evidence has shown already, and streams that were
    contiguous, are no news.  A sample is taken afresh in the state after the last line.
    """
    belief, universe = diagnosis.belief, diagnosis.universe
    if belief is None or universe is None:
        return []
    network, suspects = belief.network, suspects_of(belief, universe)
    known = _known(diagnosis, network, universe)
    asked = [(c, _chosen(c, suspects)) for c in commands]
    pairs = [_pairs(c, chosen, suspects, network, universe, known) for c, chosen in asked]
    histories = Histories(network, list(_kinds(network, [p for group in pairs for p in group if p.value != NOW])))
    offers = []
    for (command, chosen), group in zip(asked, pairs, strict=True):
        outlook = look_out(belief, group, histories if command.shows == "past" else None)
        gain, error = information(outlook, draws=draws, seed=seed)
        outcomes = _outcomes(outlook, diagnosis, command, network, universe)
        offers.append(Offer(command, gain, error, chosen, outcomes))
    offers.sort(key=lambda offer: -offer.gain)  # stable: ties stay in the order of the file
    return [o if i < TOLD else Offer(o.command, o.gain, o.error, o.suspects, []) for i, o in enumerate(offers)]


def information(outlook: Outlook, *, draws: int = DRAWS, seed: int = 0) -> tuple[float, float]:
    """Mutual information of the mode and what is shown, nats, and its standard error (0: summed exactly)."""
    classes = [int(np.count_nonzero(outlook.tables[:, i].any(axis=0))) for i in range(len(outlook.pairs))]
    if not outlook.pairs and not outlook.samples:
        return 0.0, 0.0
    if not outlook.samples and float(np.prod(np.array(classes, dtype=float))) <= MOST_OUTCOMES:
        grids = np.meshgrid(*[np.flatnonzero(outlook.tables[:, i].any(axis=0)) for i in range(len(classes))])
        outcomes = np.stack([grid.ravel() for grid in grids], axis=1)
        log_p = _log_likelihoods(outlook, outcomes, np.zeros((len(outcomes), 0)))
        weights = np.exp(log_p) @ outlook.mass
        return float((weights * _divergences(outlook, log_p)).sum()), 0.0
    return _sampled(outlook, draws, seed)


def _sampled(outlook: Outlook, draws: int, seed: int) -> tuple[float, float]:
    """Mean divergence, and its standard error: outcomes are drawn mode by mode, of rare modes more than their share."""
    rng = np.random.default_rng(seed)
    share = np.sqrt(outlook.prior)
    counts = np.where(share > 0.0, np.maximum(np.round(draws * share / share.sum()), 2), 0).astype(int)
    mean = variance = 0.0
    for m in np.flatnonzero(counts):
        shown = _drawn(outlook, np.where(outlook.mode == m, outlook.mass, 0.0), int(counts[m]), rng)
        found = _divergences(outlook, _log_likelihoods(outlook, *shown))
        mean += float(outlook.prior[m] * found.mean())
        variance += float(outlook.prior[m] ** 2 * found.var(ddof=1) / counts[m])
    return mean, float(np.sqrt(variance))


def _posteriors(outlook: Outlook, log_p: np.ndarray) -> np.ndarray:
    """[outcomes, modes] from log likelihoods [outcomes, H]."""
    weights = np.exp(log_p - log_p.max(axis=1, keepdims=True)) * outlook.mass
    by_mode = np.stack([weights[:, outlook.mode == m].sum(axis=1) for m in range(len(outlook.modes))], axis=1)
    return by_mode / np.maximum(by_mode.sum(axis=1, keepdims=True), _FLOOR)


def _divergences(outlook: Outlook, log_p: np.ndarray) -> np.ndarray:
    """[outcomes] KL of the modes after each outcome from those before it, nats."""
    return _divergence(_posteriors(outlook, log_p), outlook.prior)


def _divergence(after: np.ndarray, prior: np.ndarray) -> np.ndarray:
    ratio = np.log(np.maximum(after, _FLOOR)) - np.log(np.maximum(prior, _FLOOR))
    return np.maximum(np.where(after > 0.0, after * ratio, 0.0).sum(axis=-1), 0.0)


def _log_likelihoods(outlook: Outlook, classes: np.ndarray, values: np.ndarray) -> np.ndarray:
    """[outcomes, H]; classes [outcomes, pairs], values [outcomes, samples], inf where there is none."""
    hypotheses, pairs, width = outlook.tables.shape
    total = np.zeros((len(classes), hypotheses))
    if pairs:
        one_hot = (classes[:, :, None] == np.arange(width)).reshape(len(classes), -1).astype(float)
        total += one_hot @ np.log(np.maximum(outlook.tables, _FLOOR)).reshape(hypotheses, -1).T
    for b, (share, centre, spread) in enumerate(outlook.outliers):
        mean, sd, absent = outlook.normals[:, b].T
        x = np.where(np.isfinite(values[:, b]), values[:, b], 0.0)[:, None]
        density = (1.0 - share) * _normal(x, mean, sd) + share * _normal(x, centre, spread)
        total += np.log(np.maximum(np.where(np.isinf(values[:, b, None]), absent, (1.0 - absent) * density), _FLOOR))
    return total


def _normal(x: np.ndarray, mean: np.ndarray | float, sd: np.ndarray | float) -> np.ndarray:
    return np.exp(-0.5 * ((x - mean) / sd) ** 2) / (sd * np.sqrt(2.0 * np.pi))


def _drawn(outlook: Outlook, mass: np.ndarray, draws: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Outcomes: hypotheses spread evenly over a mass, then what each shows."""
    reach = np.cumsum(mass)
    at = np.searchsorted(reach, reach[-1] * (np.arange(draws) + rng.random()) / draws, side="right")
    at = np.minimum(at, int(np.flatnonzero(mass)[-1]))
    reached = np.cumsum(outlook.tables[at], axis=2) <= rng.random((draws, len(outlook.pairs), 1))
    possible = outlook.tables.any(axis=0)
    last = possible.shape[1] - 1 - np.argmax(possible[:, ::-1], axis=1)  # where a sum of rounded chances stays below 1
    classes = np.minimum(reached.sum(axis=2), last)
    mean, sd, absent = np.moveaxis(outlook.normals[at], 2, 0)
    share, centre, spread = outlook.outliers.T
    noise, odd = rng.standard_normal(mean.shape), rng.random(mean.shape) < share
    values = np.where(odd, centre + spread * noise, mean + sd * noise)
    return classes, np.where(rng.random(mean.shape) < absent, np.inf, values)


def _known(diagnosis: Diagnosis, network: Network, universe: Universe) -> tuple[frozenset[str], set[Pair]]:
    """Streams in which absence counted, and the lines of logs that were read."""
    index = {signal.name: s for s, signal in enumerate(network.spec.signal)}
    laid = any(finding.kind == "contiguous" for finding in diagnosis.limitations)
    seen = set()
    for reading in diagnosis.ingested.readings:
        if reading.signal in index:
            values = network.spec.signal[index[reading.signal]].values
            value = values.index(str(reading.value)) if reading.value in values else 1
            seen |= {Pair(index[reading.signal], e, value) for e in universe.entities(reading.entity)}
    return (contiguous_streams(network, diagnosis.ingested.readings) if laid else frozenset()), seen


def _chosen(command: Command, suspects: list[Suspect]) -> list[Suspect]:
    """Where a command runs: suspected hosts first."""
    if command.runs_on == "each suspected host":
        return [s for s in suspects if s.suspected] or suspects[:1]
    if command.runs_on == "one host":
        return suspects[:1]
    return list(suspects)


def _pairs(
    command: Command, chosen: list[Suspect], suspects: list[Suspect], network: Network, universe: Universe,
    known: tuple[frozenset[str], set[Pair]],
) -> list[Pair]:  # fmt: skip
    """What a command shows that is not known, as far as there is room, the most suspected hosts first."""
    found: list[Pair] = []
    complete, seen = known
    for name in command.signals:
        s = network.signal_index(name)
        signal = network.spec.signal[s]
        if command.shows == "past" and signal.stream in complete:
            continue
        for entity in _entities(signal, chosen, network, universe):
            found.extend(p for p in _shown_of(signal, s, entity, command.shows) if p not in seen or p.value == NOW)
    place = {suspect.node: i for i, suspect in enumerate(suspects)}
    if len(found) > MOST_PAIRS:
        nodes = {s: network.layout.node_of(network.spec.signal[s].entity) for s in {p.signal for p in found}}
        found.sort(key=lambda p: place.get(int(nodes[p.signal][p.entity]), -1))
    return found[:MOST_PAIRS]


def _entities(signal: Signal, chosen: list[Suspect], network: Network, universe: Universe) -> list[int]:
    present = np.flatnonzero(universe.present[signal.entity])
    if signal.entity not in (*HOSTED, "node"):
        return [int(e) for e in present]
    on = {suspect.node for suspect in chosen}
    node_of = network.layout.node_of(signal.entity)
    return [int(e) for e in present if int(node_of[e]) in on]


def _shown_of(signal: Signal, s: int, entity: int, shows: str) -> list[Pair]:
    if shows == "now":
        return [Pair(s, entity)]
    return [Pair(s, entity, value) for value in (range(1, len(signal.values)) if signal.values else (1,))]


def _kinds(network: Network, pairs: Iterable[Pair]) -> Iterable[LineKind]:
    for signal, value in dict.fromkeys((pair.signal, pair.value) for pair in pairs):
        yield LineKind(signal, value)
        if KIND_OF_FAMILY[network.spec.signal[signal].family] == CHORUS:
            yield LineKind(signal, 1, told=True)


def _outcomes(
    outlook: Outlook, diagnosis: Diagnosis, command: Command, network: Network, universe: Universe
) -> list[Outcome]:
    """The two likeliest outcomes of the one thing, among all that is shown, that tells most by itself."""
    if not outlook.pairs and not outlook.samples:
        return []
    by_mode = np.stack([outlook.mass * (outlook.mode == m) for m in range(len(outlook.modes))])
    likely, told = np.zeros(0), -1.0
    best, words = Pair(0, 0), []
    for i, pair in enumerate(outlook.pairs):
        joint = by_mode @ outlook.tables[:, i]  # [modes, classes]
        if (worth := _worth(joint, outlook.prior)) > told:
            likely, told, best, words = joint, worth, pair, _words(network.spec.signal[pair.signal], pair)
    for b, pair in enumerate(outlook.samples):
        mean, sd, absent = outlook.normals[:, b].T
        middle = float((outlook.mass * mean).sum())
        below = _below(middle, mean, sd)
        joint = by_mode @ np.stack([(1.0 - absent) * below, (1.0 - absent) * (1.0 - below), absent], axis=1)
        if (worth := _worth(joint, outlook.prior)) > told:
            unit = (
                network.spec.signal[pair.signal].unit if network.spec.signal[pair.signal].family == "gaussian" else ""
            )
            edge = f"{middle:.2g} {unit}".strip()
            likely, told, best, words = joint, worth, pair, [f"below {edge}", f"above {edge}", "no value"]
    signal, chances = network.spec.signal[best.signal], likely.sum(axis=0)
    lead = outlook.modes.index(diagnosis.leading)
    entity = universe.label(signal.entity, best.entity)
    found = []
    for c in np.argsort(-chances, kind="stable")[:2]:
        if chances[c] > 0.0:
            after = likely[:, c] / chances[c]
            then = int(np.argmax(after))
            found.append(Outcome(
                signal.title, entity, words[c], float(chances[c]), diagnosis.leading, float(after[lead]),
                outlook.modes[then], float(after[then]),
            ))  # fmt: skip
    return found


def _worth(joint: np.ndarray, prior: np.ndarray) -> float:
    chances = joint.sum(axis=0)
    after = (joint / np.maximum(chances, _FLOOR)).T
    return float((chances * _divergence(after, prior)).sum())


def _below(edge: float, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    from scipy.special import ndtr

    return ndtr((edge - mean) / sd)


def _words(signal: Signal, pair: Pair) -> list[str]:
    """What each class of a pair is called."""
    if pair.value != NOW:
        value = f" {signal.values[pair.value].replace('_', ' ')}" if signal.values else ""
        return [f"not in the log{value and ' as' + value}", f"in the log{value and ' as' + value}"]
    if signal.family == "count":
        return list(_COUNTS)
    if signal.values and KIND_OF_FAMILY[signal.family] == DISCRETE:
        return [value.replace("_", " ") for value in signal.values]
    return ["no", "yes"]
