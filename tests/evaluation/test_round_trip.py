"""What is simulated, written, read and diagnosed is what the values themselves say."""

from __future__ import annotations

import io
import json
from functools import cache

import numpy as np
import pytest
from rich.console import Console

from clusterorch.evaluation.__main__ import main
from clusterorch.evaluation.drawing import LAYOUTS, one_limit, phases_of, planned
from clusterorch.evaluation.round_trip import Names, RoundTrip, summary
from clusterorch.models import Layout
from clusterorch.telemetry.naming import Naming
from clusterorch.telemetry.readings import LOCAL, EntityRef


@cache
def trips() -> RoundTrip:
    return RoundTrip(seed=0)


def number_of(mode: str, layout: str) -> str:
    """The first incident of a mode on a layout."""
    return next(str(n) for n in range(500) if (p := trips().plan(str(n))).mode == mode and p.layout == layout)


def test_modes_and_layouts_are_drawn_alike():
    plans = [planned(trips().reader.spec, n, 3) for n in range(4000)]
    modes = {mode: sum(p.mode == mode for p in plans) for mode in {p.mode for p in plans}}
    assert len(modes) == 16
    assert all(abs(count - 250) < 4.9 * np.sqrt(250) for count in modes.values()), modes
    layouts = [sum(p.layout == layout for p in plans) for layout in LAYOUTS]
    assert all(abs(count - 4000 / 3) < 4.9 * np.sqrt(900) for count in layouts), layouts


def test_what_begins_in_a_phase_begins_in_it():
    for n in range(40):
        plan = planned(trips().reader.spec, n, 4)
        trace = plan.simulate(trips().world(plan.layout), 80, record=False)
        phases = phases_of(trips().reader.spec, plan.variant)
        begun = trace.metadata["phases"][int(trace.published["phase"][plan.at])]
        assert [fault["variant"] for fault in trace.faults] == [plan.variant]
        assert not phases or begun in phases, (plan, begun)


def test_names_of_the_logs_stand_for_entities_of_the_layout():
    names = Names(Naming(Layout(2, 4)))
    known = {
        ("gpu", EntityRef("gpu", "node-0001", names.naming.address(2))): 6,
        ("gpu", EntityRef("gpu", "node-0000", None, 3)): 3,
        ("rank", EntityRef("rank", "node-0001", None, 5)): 5,
        ("rank", EntityRef("rank", "node-0001", LOCAL, 1)): 5,
        ("rank", EntityRef("rank", "node-0001", "pid 41021")): 6,
        ("link", EntityRef("link", "node-0001", "mlx5_1")): 5,
        ("node", EntityRef("node", "node-0001")): 1,
        ("storage", EntityRef("storage", None, "fsx")): 0,
    }
    assert {key: names.number(*key) for key in known} == known
    assert names.number("gpu", EntityRef("gpu", "node-0007", None, 0)) is None


def test_an_episode_states_one_limit():
    key = number_of("nccl_watchdog_timeout", "2x4")
    world, trace = one_limit(trips().world("2x4"), trips().plan(key))
    stated = {e.payload["value"] for e in trace.events if e.kind == "limit_class"}
    assert len(stated) <= 1
    assert len(set(trace.signal("limit_class")[np.nan_to_num(trace.signal("limit_class")) > 0])) <= 1
    limits = dict(world.limits)
    assert stated in ({"usual"}, set()) or limits["watchdog"] in (5.0, 3600.0)


@pytest.mark.parametrize(("mode", "layout"), [("gpu_xid", "2x4"), ("nan_injection", "1x8"), ("healthy", "2x4")])
def test_logs_say_what_the_values_say(mode, layout):
    record = trips().run(number_of(mode, layout))
    assert record["apart"] < 0.05, record
    assert record["unrecognised"] == 0
    assert sum(record["values"].values()) == pytest.approx(1.0)


# A failed start that no device computes in, a save that somebody interrupts, a burst at the end of a slice, losses
# that happen to begin low.
@pytest.mark.parametrize("number", ["94", "181", "102", "105"])
def test_incidents_that_were_read_otherwise(number):
    record = trips().run(number)
    assert record["apart"] < 0.06, record


def test_the_command_writes_its_page(tmp_path):
    silent = Console(file=io.StringIO())
    assert main(["round-trip", "--incidents", "1", "--out", str(tmp_path)], silent) == 0
    result = json.loads((tmp_path / "round_trip.json").read_text())
    assert result["scores"]["all"]["incidents"] == 1
    assert "| all | 1 |" in (tmp_path / "round_trip.md").read_text()


def test_the_summary_counts():
    modes = {"a": 0.6, "b": 0.4}
    other = {"a": 0.1, "b": 0.9}
    base = {"layout": "1x8", "variant": "a.x", "at": 3, "unrecognised": 0}
    records = [
        {"key": "0", "truth": "a", "logs": modes, "values": modes, "whole": modes, "apart": 0.0, **base},
        {"key": "1", "truth": "a", "logs": other, "values": modes, "whole": modes, "apart": 0.5, **base},
    ]
    scores = summary(records)["scores"]["all"]
    assert (scores["ac1_logs"], scores["ac1_values"], scores["apart"], scores["same_first"]) == (0.5, 1.0, 0.25, 0.5)
    assert [far["key"] for far in summary(records)["far"]] == ["1"]


@pytest.mark.long
def test_round_trips_lose_little():
    records = [trips().run(str(n)) for n in range(60)]
    scores = summary(records)["scores"]["all"]
    assert scores["apart"] < 0.06
    assert scores["ac1_logs"] > scores["ac1_values"] - 0.06
