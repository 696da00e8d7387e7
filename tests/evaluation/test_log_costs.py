"""What reading costs is measured on logs that are what they are said to be."""

from __future__ import annotations

import pytest

from clusterorch import models
from clusterorch.evaluation.log_costs import MEGABYTE, SHARE_SAID, LogCosts, make_corpus, measure, texts_asked_for
from clusterorch.telemetry.patterns import load_formats, shipped_formats


def test_a_corpus_has_its_size_and_its_share_of_evidence(tmp_path):
    total = make_corpus(tmp_path / "logs", 1.0, [b"evidence\n" * 1000])
    files = list((tmp_path / "logs").iterdir())
    assert total == sum(file.stat().st_size for file in files) >= MEGABYTE
    said = sum(file.stat().st_size for file in files if not file.name.endswith("more"))
    assert said / total == pytest.approx(SHARE_SAID, rel=0.05)


def test_growth_and_speed_by_hand():
    costs = LogCosts([(10.0, 1.0), (20.0, 2.0), (40.0, 4.0)], 0.1, 3, 200.0, 150.0)
    assert costs.megabytes_a_second == 10.0
    assert costs.exponent == pytest.approx(1.0)


def test_texts_are_those_of_the_formats():
    texts = texts_asked_for(load_formats(shipped_formats()))
    assert len(texts) == len(set(texts)) > 500
    assert all("\n" not in text for text in texts)


@pytest.mark.long
def test_reading_is_linear_in_size():
    costs = measure(models.load("reference").format_files, (2, 4, 8))
    assert 0.6 < costs.exponent < 1.3
    assert costs.peak < 1024.0
    assert costs.grep_seconds is None or costs.grep_seconds > 0.0
