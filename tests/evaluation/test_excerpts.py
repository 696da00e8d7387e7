"""Diagnoses of excerpts whose causes come from the prior are as sure as they are right."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache

import numpy as np
import pytest
from rich.console import Console

from clusterorch.evaluation.__main__ import main
from clusterorch.evaluation.excerpts import Excerpting, summary
from clusterorch.inference.priors import by_phase, incident_mix
from clusterorch.models.spec import PHASES


@cache
def excerpting() -> Excerpting:
    return Excerpting(seed=0)


def test_causes_come_from_the_prior_of_the_filter():
    drawn = [excerpting().cause(number, 20) for number in range(4000)]
    network, prior = excerpting().world.hidden_network, excerpting().world.spec.prior
    step = [cause for cause in drawn if PHASES[cause.phase] == "step"]
    share = by_phase(network, (1.0 - prior.healthy) * incident_mix(network, prior.uniform_share))[PHASES.index("step")]
    found = Counter(cause.variant for cause in step)
    for block, p in zip(network.blocks, share, strict=True):
        if not block.variant.benign:
            assert abs(found[block.variant.name] - len(step) * p) < 4.9 * np.sqrt(len(step) * p) + 1.0
    early = excerpting().early(20)
    begun = [cause for cause in drawn if cause.variant is not None]
    before = sum(cause.at < excerpting().preroll for cause in begun)
    assert abs(before - early * len(begun)) < 4.9 * np.sqrt(len(begun) * early * (1 - early))
    assert all(0 <= cause.at < excerpting().preroll + 20 for cause in begun)


def test_what_is_pasted_is_read_again():
    records = [excerpting().run(str(number)) for number in range(4)]
    for record in records:
        missing = set(record["pasted"]) - set(record["read"])
        assert len(missing) <= 1, record
        assert record["unrecognised"] == 0
        assert sum(record["marks"].values()) == pytest.approx(1.0)
    counted = summary(records)
    assert counted["excerpts"] == sum(one["excerpts"] for one in counted["by_mode"].values()) == 4


def test_the_command_writes_its_page(tmp_path):
    import io

    assert main(["excerpts", "--incidents", "2", "--out", str(tmp_path)], Console(file=io.StringIO())) == 0
    result = json.loads((tmp_path / "excerpts.json").read_text())
    assert result["excerpts"] == 2
    assert "| mean log score |" in (tmp_path / "excerpts.md").read_text()


@pytest.mark.long
def test_marks_are_calibrated():
    records = [excerpting().run(str(number)) for number in range(400)]
    marks = summary(records)["rows"]["marks"]
    assert marks["top_label_error"] < marks["top_label_error_if_right"] + 0.04
    assert marks["score_off_entropy"] < 0.12
