"""The picture of an incident."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from clusterorch.errors import ClusterorchError
from clusterorch.figures.incident import Mark, draw_incident, incident_figure

ROOT = Path(__file__).resolve().parents[2]
LANES = {"nccl": "NCCL logs", "smi": "nvidia-smi"}
TIMES = 15.0 * np.arange(41)
LATE = np.where(TIMES >= 300.0, 0.8, 0.0)
MODES = {
    "a": LATE,
    "b": np.where(TIMES >= 300.0, 0.19, 0.0),
    "c": 0.01 + 0.0 * TIMES,
    "healthy": 0.99 - LATE / 0.8 * 0.99,
}
MARKS = [
    Mark(300.0, "cause", "the root"),
    Mark(320.0, "cause", "its effect"),
    Mark(325.0, "nccl", "a line"),
    Mark(15.0, "smi", "x", everyday=True),
]


def figure(**changed):
    given = {"times": TIMES, "modes": MODES, "marks": MARKS, "lanes": LANES, "onset": 300.0} | changed
    return incident_figure(**given)


def words(made):
    return {text.get_text() for axes in made.axes for text in axes.texts}


def test_each_mode_that_matters_has_an_area_and_the_rest_share_one():
    ribbon = figure().axes[0]
    assert [text.get_text() for text in ribbon.get_legend().get_texts()] == ["1 other", "b", "a", "healthy"]
    tops = [area.get_paths()[0].vertices[:, 1].max() for area in ribbon.collections]
    assert tops == pytest.approx([0.99, 0.99 - 0.99 + 0.99, 1.0, 1.0], abs=0.011)


def test_healthy_is_the_lightest_area():
    ribbon = figure().axes[0]
    brightness = [area.get_facecolor()[0][:3].sum() for area in ribbon.collections]
    assert int(np.argmax(brightness)) == 0


def test_the_true_onset_is_marked_in_both_parts():
    for axes in figure().axes:
        assert any(np.allclose(line.get_xdata(), 5.0) and len(line.get_xdata()) == 2 for line in axes.lines)
    assert "the fault begins" in words(figure())
    assert "the fault begins" not in words(figure(onset=None))


def test_causes_are_named_and_every_lane_shows_its_marks():
    made = figure()
    assert {"the root", "its effect"} <= words(made)
    below = made.axes[1]
    assert {label.get_text() for label in below.get_yticklabels()} == {"causes", "NCCL logs", "nvidia-smi"}
    seen = sorted(float(x) for line in below.lines if line.get_marker() == "|" for x in line.get_xdata())
    assert seen == pytest.approx([0.25, 325.0 / 60.0])


def test_names_of_causes_neither_overlap_nor_leave_the_picture():
    many = [Mark(300.0 + 30 * n, "cause", f"cause number {n} with a long name") for n in range(12)]
    made = figure(marks=many)
    made.canvas.draw()
    renderer = made.canvas.get_renderer()
    boxes = [t.get_window_extent(renderer) for t in made.axes[1].texts if t.get_text().startswith("cause")]
    assert len(boxes) == 8
    assert not any(one.overlaps(other) for n, one in enumerate(boxes) for other in boxes[:n])
    assert all(made.bbox.x0 <= box.x0 and box.x1 <= made.bbox.x1 for box in boxes)
    assert "and 4 more causes" in words(made)


def test_a_quiet_job_has_a_picture_too():
    figure(marks=[], onset=None, modes={"a": 0.0 * TIMES, "healthy": 1.0 + 0.0 * TIMES}).canvas.draw()


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_same_incident_gives_the_same_bytes(tmp_path, suffix):
    one, other = (
        draw_incident(tmp_path / f"{n}.{suffix}", TIMES, MODES, MARKS, lanes=LANES, onset=300.0) for n in "ab"
    )
    assert one.read_bytes() == other.read_bytes()
    assert len(one.read_bytes()) > 10_000


def test_another_suffix_is_refused(tmp_path):
    with pytest.raises(ClusterorchError, match=r"\.png or \.svg"):
        draw_incident(tmp_path / "a.pdf", TIMES, MODES, MARKS, lanes=LANES, onset=None)


def test_no_global_state_of_matplotlib_is_used():
    code = (
        "import sys; from tests.figures.test_incident import figure; figure(); "
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    # In a process of its own: other tests load libraries that use it.
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0
