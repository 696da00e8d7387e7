import numpy as np
import pytest

from clusterorch.errors import InvalidLayout
from clusterorch.models import Layout

LAYOUT = Layout(4, 4, rails=2, leaves=2)
PER_NODE = {"gpu": 4, "rank": 4, "link": 2, "node": 1}
FABRIC = ("communicator", "storage", "checkpoint", "job")


def test_a_layout_is_read_from_text():
    layout = Layout.parse("4x8", rails=2, spares=1)
    assert (layout.nodes, layout.gpus, layout.rails, layout.spares, str(layout)) == (4, 8, 2, 1, "4x8")
    assert Layout.parse(layout) is layout


@pytest.mark.parametrize("text", ["", "4", "4x", "x8", "4X8", "-1x8", "4x8x2", "4 x 8", "٤x8", "4x8\n"])
def test_what_is_no_layout_is_refused(text):
    with pytest.raises(InvalidLayout, match="NODESxGPUS"):
        Layout.parse(text)


@pytest.mark.parametrize(
    ("text", "options", "field"),
    [
        ("0x8", {}, "nodes"), ("4x0", {}, "gpus"), ("4x65", {}, "gpus"), ("65537x8", {}, "nodes"),
        ("4x8", {"rails": 65}, "rails"), ("4x8", {"leaves": 5}, "leaves"), ("4x8", {"spares": 5}, "spares"),
        ("4x8", {"storage": 0}, "storage"), ("4x8", {"copies": 9}, "copies"),
    ],
)  # fmt: skip
def test_what_is_out_of_range_is_refused_by_name(text, options, field):
    with pytest.raises(InvalidLayout, match=f"{field}="):
        Layout.parse(text, **options)


def test_what_is_not_given_follows_from_the_rest():
    layout = Layout(33, 8)
    assert (layout.rails, layout.leaves) == (8, 3)


def test_every_kind_is_counted():
    counts = {kind: LAYOUT.count(kind) for kind in (*PER_NODE, "leaf", "rail", *FABRIC)}
    assert counts == {
        "gpu": 16, "rank": 16, "link": 8, "node": 4, "leaf": 2, "rail": 2,
        "communicator": 1, "storage": 1, "checkpoint": 1, "job": 1,
    }  # fmt: skip


def node_of(kind, entity):
    return entity // PER_NODE[kind]


def leaf_of(kind, entity):
    return entity if kind == "leaf" else node_of(kind, entity) // 2


def expected(site_kind, site, kind, entity):
    """The table of the model language, said again: 2 at the site, 1 near it, 0 elsewhere."""
    devices = ("gpu", "rank")
    if site_kind in (*devices, "link") and kind in PER_NODE:
        same_place = site == entity and (kind in devices) == (site_kind in devices)
        if kind == "node":
            return 2 if node_of(site_kind, site) == entity else 0
        if node_of(site_kind, site) != node_of(kind, entity):
            return 0
        return 2 if same_place else 1
    if site_kind == "node" and kind in PER_NODE:
        return 2 if node_of(kind, entity) == site else 0
    if site_kind == "leaf" and (kind in PER_NODE or kind == "leaf"):
        return 2 if leaf_of(kind, entity) == site else 0
    if site_kind == "rail" and kind == "link":
        return 2 if entity % LAYOUT.rails == site else 0
    return 2 if site_kind == kind and site == entity else 0


@pytest.mark.parametrize("site_kind", [*PER_NODE, "leaf", "rail", *FABRIC])
@pytest.mark.parametrize("kind", [*PER_NODE, "leaf", "rail", *FABRIC])
def test_relations_are_those_of_the_model_language(site_kind, kind):
    for site in range(LAYOUT.count(site_kind)):
        relation = LAYOUT.relation(site_kind, site, kind)
        assert relation.tolist() == [expected(site_kind, site, kind, e) for e in range(LAYOUT.count(kind))]


@pytest.mark.parametrize("level", ["unit", "node", "leaf", "rail"])
def test_groups_partition_links(level):
    groups = LAYOUT.groups("link", level)
    assert np.array_equal(np.unique(groups), np.arange(LAYOUT.group_count("link", level)))


def test_nodes_fill_leaves_in_order():
    assert Layout(5, 1, leaves=2).leaf_of_node.tolist() == [0, 0, 0, 1, 1]
