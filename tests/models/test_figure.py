from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from matplotlib.image import imread
from matplotlib.patches import FancyBboxPatch

from clusterorch.figures.causal_graph import boxes, causal_graph_figure, draw_causal_graph
from clusterorch.models import load
from tests.models import tiny


@pytest.fixture(scope="module")
def graph():
    return load("reference").graph


def tiny_graph():
    from clusterorch.causal.graph import causal_graph

    return causal_graph(tiny.spec())


def test_a_picture_is_written_and_shows_something(tmp_path, graph):
    path = draw_causal_graph(graph, tmp_path / "new" / "graph.png")
    pixels = imread(path)[::3, ::3, :3]
    height, width, _ = pixels.shape
    assert min(height, width) > 400
    paper = (pixels > 0.99).all(axis=2)
    assert 0.6 < paper.mean() < 0.99  # light, and not blank
    assert all(paper[edge].all() for edge in (0, -1))
    coloured = np.ptp(pixels, axis=2) > 0.2
    assert coloured.mean() > 0.003
    for half in np.array_split(paper, 2, axis=1):
        assert half.mean() < 0.99


def test_a_picture_for_the_web_is_text_and_always_the_same(tmp_path):
    first = draw_causal_graph(tiny_graph(), tmp_path / "a.svg").read_bytes()
    second = draw_causal_graph(tiny_graph(), tmp_path / "b.svg").read_bytes()
    assert first == second
    assert first.lstrip().startswith(b"<?xml")


def test_another_suffix_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"\.png or \.svg"):
        draw_causal_graph(tiny_graph(), tmp_path / "graph.gif")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("which", ["reference", "tiny"])
def test_no_two_boxes_overlap(which, graph):
    placed = boxes(graph if which == "reference" else tiny_graph())
    for (a, one), (b, other) in combinations(placed.items(), 2):
        beside = one[2] <= other[0] or other[2] <= one[0]
        above = one[3] <= other[1] or other[3] <= one[1]
        assert beside or above, (a, b)


def test_causes_stand_left_of_effects(graph):
    placed = boxes(graph)
    assert placed.keys() == set(graph)
    for tail, head in graph.edges:
        assert placed[tail][2] < placed[head][0], (tail, head)


def test_every_label_fits_its_box_and_the_page(graph):
    figure = causal_graph_figure(graph)
    axes = figure.axes[0]
    renderer = figure.canvas.get_renderer()
    page = figure.bbox
    frames = [p.get_window_extent(renderer) for p in axes.patches if isinstance(p, FancyBboxPatch)]
    labels = [text.get_window_extent(renderer) for text in axes.texts if text.get_text()]
    inside = [any(_within(label, frame) for frame in frames) for label in labels]
    assert sum(inside) == len(frames) == len(graph)
    for label in [*labels, axes.get_legend().get_window_extent(renderer)]:
        assert _within(label, page)
    for one, other in combinations(labels, 2):
        assert not one.overlaps(other)


def _within(small, large):
    return large.x0 <= small.x0 and small.x1 <= large.x1 and large.y0 <= small.y0 and small.y1 <= large.y1


def test_a_graph_without_mechanisms_is_drawn(tmp_path):
    graph = nx.DiGraph(name="bare")
    graph.add_node("mode", kind="mode", category="hardware", index=0, title="")
    graph.add_node("mode.variant", kind="variant", category="hardware", index=1, title="")
    graph.add_edge("mode", "mode.variant", kind="variant")
    assert draw_causal_graph(graph, tmp_path / "bare.png").stat().st_size > 0
