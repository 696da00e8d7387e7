"""Real incidents of the modes that the reference model knows: which mode, where, and the same however they are told."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from clusterorch.diagnosis.diagnose import Diagnosis, default_incident_model, diagnose
from clusterorch.models import compile as compiling
from clusterorch.telemetry.patterns import Formats, load_formats
from clusterorch.telemetry.reading import read_paths
from tests.diagnosis import retellings
from tests.diagnosis.retellings import Logs

CASES = Path(__file__).parents[2] / "data" / "cases"
FAILED = ["001", "002", "003", "022", "023", "042", "045", "046", "054", "056"]
HEALTHY = ["068", "069", "071"]
# Logs of one program as a whole, whose lines name no rank: these a launcher could print once for each rank.
TOLD_BY_EVERY_RANK = {"002": {"train.log"}, "056": {"train.log"}, "068": {"train.log"}, "069": {"train.log"}}
TOLD_BY_EVERY_RANK |= {"054": {"train.log"}, "071": {"train.log"}}
MOST_MOVED = 0.02


@functools.cache
def model():
    return default_incident_model()


@functools.cache
def formats() -> Formats:
    return load_formats(model().format_files)


@pytest.fixture(autouse=True, scope="module")
def compiled_once():
    """A model on a layout is compiled once for all tellings of a case: only what is told differs."""
    compile_network, known = compiling.compile_network, {}

    def remembered(spec, layout, *, limits, hidden_age):
        key = (layout, tuple(sorted(limits.items())), hidden_age)
        if key not in known:
            known[key] = compile_network(spec, layout, limits=limits, hidden_age=hidden_age)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "compile_network", remembered)
        yield


def logs(case: str) -> Logs:
    files = sorted((CASES / f"case-{case}" / "logs").iterdir())
    return {file.name: file.read_bytes().decode("utf-8") for file in files}


@functools.cache
def as_told(case: str) -> Diagnosis:
    return diagnose(model(), read_paths([CASES / f"case-{case}" / "logs"], formats()))


def retold(told: Logs, folder: Path) -> Diagnosis:
    for name, text in told.items():
        (folder / name).write_bytes(text.encode("utf-8"))
    return diagnose(model(), read_paths([folder], formats()))


def moved(one: Diagnosis, other: Diagnosis) -> float:
    """Total variation of the modes."""
    return 0.5 * sum(abs(one.modes[mode] - other.modes[mode]) for mode in one.modes)


def truth(case: str) -> dict:
    return json.loads((CASES / f"case-{case}" / "truth.json").read_text(encoding="utf-8"))


def rank_of_place(diagnosis: Diagnosis, names: list[str]) -> int | None:
    reported = [name.lower() for _, name, p in diagnosis.sites if p > 0.0]
    return next((i for i, name in enumerate(reported, 1) if any(n.lower() in name for n in names)), None)


@pytest.mark.parametrize("case", [*FAILED, *HEALTHY])
def test_the_mode_is_the_true_one(case):
    assert as_told(case).leading == truth(case)["truth_mode"], as_told(case).modes


@pytest.mark.parametrize("case", [case for case in FAILED if truth(case)["truth_site"]])
def test_the_place_is_among_the_first_three(case):
    rank = rank_of_place(as_told(case), truth(case)["truth_site"]["names"])
    assert rank is not None
    assert rank <= 3, as_told(case).sites[:5]


RETELLINGS = {
    "hosts renamed": lambda case: retellings.hosts_renamed(logs(case), as_told(case).ingested.hosts),
    "files renamed": lambda case: retellings.files_renamed(logs(case)),
    "files in another order": lambda case: retellings.files_turned_round(logs(case)),
    "clocks later": lambda case: retellings.clocks_later(logs(case)),
    "lines three times": lambda case: retellings.lines_thrice(logs(case)),
    "a block for every rank": lambda case: retellings.blocks_by_rank(logs(case), TOLD_BY_EVERY_RANK.get(case, set())),
    "carriage returns": lambda case: retellings.carriage_returns(logs(case)),
}


@pytest.mark.parametrize("case", [*FAILED, *HEALTHY])
@pytest.mark.parametrize("how", RETELLINGS)
def test_how_it_is_told_moves_little(how, case, tmp_path):
    told = RETELLINGS[how](case)
    if told == logs(case):
        pytest.skip("nothing of the kind in these logs")
    assert moved(as_told(case), retold(told, tmp_path)) < MOST_MOVED
