"""Diagnoses made by hand: what a view shows does not depend on a filter."""

from clusterorch import models
from clusterorch.diagnosis.diagnose import Diagnosis, Onset, Weight
from clusterorch.telemetry.readings import Coverage, EntityRef, Finding, Ingested, Reading, Unrecognised

MODEL = models.load("reference", layout="1x2", overlays=["incident"])
LINK = EntityRef("link", "n7", "mlx5_3")
DOWN = "May  6 21:03:26 n7 kernel: mlx5_core 0000:18:00.0 ibp24s0: Link down"


def reading(line=1, text=DOWN, *, file="ib.log", signal="nic_link_down", value=1, time=831416606.0, entity=LINK):
    clock = "none" if time is None else "wall"
    return Reading(file, line, time, line, "kernel", signal, value, entity, text, "nic_down", clock)


def modes(**given):
    names = [*MODEL.modes, "healthy"]
    rest = (1.0 - sum(given.values())) / (len(names) - len(given))
    return {name: given.get(name, rest) for name in names}


def change(**given):
    return {name: given.get(name, 0.0) for name in [*MODEL.modes, "healthy"]}


def diagnosis(beliefs=None, *, weights=None, ingested=None, onset=None, sites=None, proximate=None):
    beliefs = beliefs or modes(ib_link_flap=0.9)
    if weights is None:
        weights = [Weight(reading(), change(ib_link_flap=7.5), "ib_link_flap")]
    inside = dict.fromkeys(MODEL.variants, 0.0) | {"ib_link_flap.beyond_limit": beliefs["ib_link_flap"]}
    return Diagnosis(
        beliefs,
        inside,
        sites or [("link", str(LINK), 0.8), ("job", "job", 0.1)],
        onset or Onset(0.31, weights[0].reading if weights else None),
        proximate or ("transport_gave_up", "transport gives up", 0.7),
        weights,
        [(weight.reading, beliefs) for weight in weights],
        ingested or Ingested(coverage=Coverage(lines=3, recognised=3)),
        MODEL,
    )


__all__ = ["Coverage", "Finding", "Ingested", "Unrecognised", "change", "diagnosis", "modes", "reading"]
