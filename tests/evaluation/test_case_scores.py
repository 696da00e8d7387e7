"""The table of a folder of incidents."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from clusterorch.errors import IngestError
from clusterorch.evaluation.__main__ import main
from clusterorch.evaluation.baselines import keyword_modes, read_rows
from clusterorch.evaluation.cases import summary
from clusterorch.evaluation.incidents import rank_of_place, read_incidents
from clusterorch.evaluation.retellings import (
    clocks_later,
    files_renamed,
    hosts_renamed,
    later,
    logs_of,
    written,
)
from clusterorch.models.reading import read_whole

ROOT = Path(__file__).parents[2]
CASES, KEYWORDS = ROOT / "data" / "cases", ROOT / "data" / "baselines" / "keywords.toml"


def record(key, truth, modes, **more):
    return {
        "key": key, "set": "hard", "truth": truth, "near": None, "modes": modes, "variant": "", "place": None,
        "rows": [], "keyword": modes, "alone": modes, "other_priors": {}, **more,
    }  # fmt: skip


def test_scores_by_hand():
    right, near = {"a": 0.5, "b": 0.3, "c": 0.2}, {"a": 0.2, "b": 0.7, "c": 0.1}
    records = [
        record("1", "a", right, rows=["x", "y"], place={"rank": 2, "reported": []}),
        record("2", "a", near, set="likely", near="b", rows=["x"], place={"rank": None, "reported": []}),
    ]
    found = summary(records, {"a": 0.2, "b": 0.2, "c": 0.6})
    mine = found["table"]["clusterorch"]
    assert [mine["all"][k] for k in ("ac1", "ac1_near", "ac3")] == [0.5, 1.0, 1.0]
    assert mine["all"]["log_score"] == pytest.approx(-(0.6931472 + 1.6094379) / 2)
    assert mine["confirmed"] is None
    assert found["table"]["prior only"]["all"]["ac1"] == 0.0
    assert found["places"] == {"scored": 2, "first": 0, "first_three": 1, "not_named": ["2"]}
    assert found["rows_of_one_incident"] == {"y": "1"}
    assert [miss["incident"] for miss in found["missed"]] == ["2"]


def test_the_keyword_row_names_every_mode_once():
    rows = read_rows(KEYWORDS)
    modes = [mode["name"] for mode in read_whole(ROOT / "models" / "reference.toml")["mode"]]
    assert sorted(word.mode for word in rows.keywords) == sorted(modes)


def test_the_first_pattern_of_the_list_wins_wherever_it_stands(tmp_path):
    rows = read_rows(KEYWORDS)
    prior = {word.mode: 0.05 for word in rows.keywords} | {"healthy": 0.25}
    (tmp_path / "log").write_text("loss is nan\nNVRM: Xid (PCI:0000:61:00): 79, GPU has fallen off the bus.\n")
    said = keyword_modes(rows.keywords, tmp_path, prior)
    assert sorted(said, key=lambda mode: -said[mode])[:2] == ["gpu_xid", "nan_injection"]
    assert sum(said.values()) == pytest.approx(1.0)
    (tmp_path / "log").write_text("all is well\n")
    said = keyword_modes(rows.keywords, tmp_path, prior)
    assert max(said, key=lambda mode: said[mode]) == "healthy"


def test_places_are_found_by_part_of_their_name():
    assert rank_of_place(["link n1 mlx5_0", "GPU 0000:61:00 on N2"], ["n2"]) == 2
    assert rank_of_place(["link n1 mlx5_0"], ["n2"]) is None


def test_retellings_change_names_and_clocks_and_nothing_else(tmp_path):
    told = {"n1.log": "2025-03-04 08:00:00,001 n1: rank 3 failed\n", "dump": "\x80\x02n1 2025-03-04 08:00:00"}
    assert hosts_renamed(told, {"n1"})["zone99.log"] == "2025-03-04 08:00:00,001 zone99: rank 3 failed\n"
    assert hosts_renamed(told, {"n1"})["dump"] == clocks_later(told)["dump"] == told["dump"]
    assert later("I20260303 23:38:40.902 a.py:1] x\nE0304 23:15:13.397 y\n").split()[::4] == ["I20260304", "E0305"]
    assert clocks_later(told)["n1.log"] == "2025-03-04 15:13:00,001 n1: rank 3 failed\n"
    assert list(files_renamed(told).values()) == list(told.values())
    odd = {"log": "\x85 caf\xc3\xa9\n", "a/b": "x"}
    assert logs_of(written(odd, tmp_path)) == {"a/b": "x", "log": "\x85 caf\xc3\xa9\n"}


def test_a_folder_without_incidents_is_an_error(tmp_path):
    with pytest.raises(IngestError, match=r"no incident.*truth\.json"):
        read_incidents(tmp_path)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "truth.json").write_text("{}")
    with pytest.raises(IngestError, match=r"one/truth\.json.*truth_mode"):
        read_incidents(tmp_path)


def test_the_command_writes_a_page_and_goes_on_where_it_stopped(tmp_path):
    for case in ("case-056", "case-068"):
        shutil.copytree(CASES / case, tmp_path / "cases" / case)
    words = ["cases", "--folder", str(tmp_path / "cases"), "--keywords", str(KEYWORDS), "--out", str(tmp_path / "out")]
    silent = Console(file=io.StringIO())
    assert main([*words, "--quick"], silent) == 0
    first = (tmp_path / "out" / "incidents.jsonl").read_bytes()
    assert main([*words, "--quick"], silent) == 0
    assert (tmp_path / "out" / "incidents.jsonl").read_bytes() == first
    result = json.loads((tmp_path / "out" / "cases.json").read_text())
    assert result["table"]["clusterorch"]["all"]["ac1"] == 1.0
    assert result["made"]["sha256"] in first.decode()
    page = (tmp_path / "out" / "cases.md").read_text()
    assert "| case-056 | likely | nan_injection |" in page
    assert main(words, silent) == 2  # what was left out then would be missing now


@pytest.mark.long
def test_the_whole_measurement_of_an_incident(tmp_path):
    shutil.copytree(CASES / "case-022", tmp_path / "cases" / "case-022")
    words = ["cases", "--folder", str(tmp_path / "cases"), "--keywords", str(KEYWORDS), "--out", str(tmp_path / "out")]
    assert main(words, Console(file=io.StringIO())) == 0
    result = json.loads((tmp_path / "out" / "cases.json").read_text())
    assert result["moved_most"] < 0.02
    assert set(result["table"]) == {
        "clusterorch", "prior only", "keywords", "uniform prior", "one site", "two signals",
    }  # fmt: skip
