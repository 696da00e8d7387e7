"""A run that was interrupted goes on where it stopped, and only under the same conditions."""

from __future__ import annotations

import os

import pytest

from clusterorch.errors import OutputExists
from clusterorch.evaluation.journal import Journal

MADE = {"model": "tiny", "seed": 1}


def test_what_is_there_is_not_done_again(tmp_path):
    done = []

    def work(key):
        done.append(key)
        return {"key": key, "square": int(key) ** 2}

    assert [r["square"] for r in Journal(tmp_path / "j", MADE).fill(["1", "2"], work)] == [1, 4]
    again = Journal(tmp_path / "j", MADE)
    assert [r["square"] for r in again.fill(["1", "2", "3"], work)] == [9]
    assert done == ["1", "2", "3"]
    assert [again.records[key]["square"] for key in ("1", "2", "3")] == [1, 4, 9]


def test_a_line_that_was_cut_off_is_done_again(tmp_path):
    file = tmp_path / "j"
    list(Journal(file, MADE).fill(["1", "2"], lambda key: {"key": key}))
    file.write_bytes(file.read_bytes()[:-5])
    journal = Journal(file, MADE)
    assert list(journal.records) == ["1"]
    journal.add({"key": "2"})
    assert list(Journal(file, MADE).records) == ["1", "2"]


def test_results_of_another_model_are_not_mixed_in(tmp_path):
    Journal(tmp_path / "j", MADE).add({"key": "1"})
    with pytest.raises(OutputExists, match="another model"):
        Journal(tmp_path / "j", MADE | {"seed": 2})
    assert Journal(tmp_path / "j", MADE | {"seed": 2}, restart=True).records == {}


def test_two_workers_find_what_one_does(tmp_path):
    def work(key):
        return {"key": key, "process": os.getpid()}

    found = list(Journal(tmp_path / "j", MADE).fill(map(str, range(6)), work, workers=2))
    assert [r["key"] for r in found] == list(map(str, range(6)))
    assert os.getpid() not in {r["process"] for r in found}
