"""Two incidents in one set of logs are told apart; one incident is not."""

import functools

import pytest

from clusterorch.diagnosis.diagnose import default_incident_model, diagnose
from clusterorch.diagnosis.dossier import follow_ups, open_dossier
from clusterorch.diagnosis.incidents import Cut, two_incidents
from clusterorch.reports.page import page
from clusterorch.telemetry.patterns import load_formats
from clusterorch.telemetry.reading import read_paths

STEP = (
    "[2026-06-11 {time}] iteration     {number}/  200000 | consumed samples:     18106368 | elapsed time per iteration"
    " (ms): 5120.4 | lm loss: 2.2421E+00 | loss scale: 1.0 | grad norm: 0.171 | number of skipped iterations:   0 |"
    " number of nan iterations:   0 |"
)
LOST = [
    "2026-06-11 08:03:20 n17 kernel: NVRM: Xid (PCI:0000:5d:00): 79, pid=12, name=python, GPU has fallen off the bus.",
    "[2026-06-11 08:03:24] [rank11]: RuntimeError: CUDA error: unknown error",
]
FULL = [
    "[2026-06-11 {time}] [rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a"
    " total capacity of 79.11 GiB of which 1.07 GiB is free."
]
MORNING = [STEP.format(time="08:03:12", number=8840), STEP.format(time="08:03:17", number=8841), *LOST]


def afternoon(time="14:20"):
    steps = [STEP.format(time=f"{time}:{s}", number=9940 + i) for i, s in enumerate(("12", "18"))]
    return [*steps, FULL[0].format(time=f"{time}:20")]


@functools.cache
def model():
    return default_incident_model()


def told(lines, folder):
    (folder / "train.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return diagnose(model(), read_paths([folder], load_formats(model().format_files)))


def test_two_failures_hours_apart_are_two_incidents(tmp_path):
    found = two_incidents(told([*MORNING, *afternoon()], tmp_path))
    assert found is not None
    assert (found.first.leading, found.second.leading) == ("gpu_xid", "cuda_oom")
    assert found.probability > 0.5
    assert found.second.sites[0][1].startswith("rank 3")


def test_one_failure_and_a_job_that_works_again_is_one(tmp_path):
    diagnosis = told([*MORNING, *afternoon()[:2]], tmp_path)
    assert two_incidents(diagnosis) is None
    assert diagnosis.leading == "gpu_xid"
    assert diagnosis.modes["gpu_xid"] > 0.5


def test_two_lines_of_one_failure_are_one(tmp_path):
    again = [LOST[0].replace("08:03:20", "14:20:20"), LOST[1].replace("08:03:24", "14:20:25")]
    steps = afternoon()[:2]
    assert two_incidents(told([*MORNING, *steps, *again], tmp_path)) is None


def test_without_a_prior_for_it_nothing_is_taken_apart(tmp_path):
    (tmp_path / "none.toml").write_text(
        '[prior]\nsecond_incident = { value = 0.0, assumed = "one at most" }\n', encoding="utf-8"
    )
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/train.log").write_text("\n".join([*MORNING, *afternoon()]) + "\n", encoding="utf-8")
    from clusterorch import models

    one = models.load("reference", layout="1x2", overlays=["incident", tmp_path / "none.toml"])
    assert two_incidents(diagnose(one, read_paths([tmp_path / "logs"], load_formats(one.format_files)))) is None


def test_both_are_told_to_people_and_to_programs(tmp_path):
    dossier = open_dossier(told([*MORNING, *afternoon()], tmp_path), [])
    parts = follow_ups(dossier)["incidents"]["parts"]
    assert [part["leading"] for part in parts] == ["gpu_xid", "cuda_oom"]
    assert parts[0]["to"]["line"] < parts[1]["from"]["line"]
    assert "Two incidents" in page(dossier)


@pytest.mark.parametrize(
    ("time", "file", "order", "expected"),
    [(10.0, "other", 9, True), (30.0, "other", 1, False), (None, "a.log", 4, True), (None, "b.log", 4, None)],
)
def test_a_cut_knows_what_comes_before(time, file, order, expected, tmp_path):
    reading = told(MORNING, tmp_path).weights[0].reading
    said = reading._replace(time=time, clock="none" if time is None else "wall", file=file, order=order, after=None)
    assert Cut(20.0, "a.log", 5).before(said) is expected
