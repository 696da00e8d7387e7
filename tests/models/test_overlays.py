import csv
from pathlib import Path

import pytest

from clusterorch.errors import UnknownModel
from clusterorch.inference.priors import incident_mix
from clusterorch.models import load
from clusterorch.models.provenance import check_overlay, numbers
from clusterorch.models.reading import merge, models_folder, read_toml
from tests.models import tiny

FACTS = Path(__file__).resolve().parents[2] / "data" / "facts" / "published_numbers"
OVERLAYS = sorted(path.stem for path in (models_folder() / "overlays").glob("*.toml"))


def merged(overlay):
    return merge(tiny.raw(), overlay)


def test_a_field_is_updated_and_the_rest_stays():
    raw = merged({"timer": [{"name": "limit", "seconds": 60, "source": "paper 9"}]})
    assert raw["timer"] == [{"name": "limit", "seconds": 60, "source": "paper 9"}]
    assert raw["signal"] == tiny.raw()["signal"]


def test_a_new_table_is_added_at_the_end():
    raw = merged({"timer": [{"name": "other", "seconds": 5, "assumed": "a test"}]})
    assert [t["name"] for t in raw["timer"]] == ["limit", "other"]


def test_an_edge_is_found_by_both_its_ends():
    raw = merged({"edge": [{"from": "hot", "to": "stuck", "gate": 0.2}]})
    edge = tiny.named(raw["edge"], "hot>stuck")
    assert (edge["gate"], edge["delay"]) == (0.2, {"erlang": [2, 60]})
    assert len(raw["edge"]) == len(tiny.raw()["edge"])


def test_edges_of_one_cause_are_told_apart():
    model = {"edge": [{"from": "a", "to": "b", "gate": 0.1}, {"from": "a", "to": "c", "gate": 0.2}]}
    edges = merge(model, {"edge": [{"from": "a", "to": "c", "gate": 0.3}]})["edge"]
    assert [(e["to"], e["gate"]) for e in edges] == [("b", 0.1), ("c", 0.3)]


def test_a_variant_is_found_within_its_mode():
    overlay = {"mode": [{"name": "fault", "variant": [{"name": "plain", "recovers_per_hour": 2.0}]}]}
    variants = merged(overlay)["mode"][0]["variant"]
    assert [v["name"] for v in variants] == ["graded", "plain"]
    assert variants[1]["share"] == 0.5
    assert variants[1]["recovers_per_hour"] == 2.0


def test_rules_of_an_overlay_go_first():
    rule = {"job": "halted", "mean": 55, "assumed": "a test"}
    raw = merged({"signal": [{"name": "heat", "when": [rule]}]})
    assert tiny.named(raw["signal"], "heat")["when"] == [
        rule,
        *tiny.named(tiny.raw()["signal"], "heat")["when"],
    ]


def test_a_table_is_removed_on_request():
    raw = merged({"signal": [{"name": "heat", "remove": True}], "action": [{"name": "restart", "remove": True}]})
    assert "heat" not in [s["name"] for s in raw["signal"]]
    assert [a["name"] for a in raw["action"]] == ["roll_back"]
    tiny.checked(raw)


def test_an_edge_is_removed_by_both_its_ends():
    raw = merged({"edge": [{"from": "hot", "to": "stuck", "remove": True}]})
    assert [e["to"] for e in raw["edge"]].count("stuck") == 1
    assert len(raw["edge"]) == len(tiny.raw()["edge"]) - 1


def test_the_origin_of_an_overlay_replaces_that_of_the_model():
    overlay = {"timer": [{"name": "limit", "seconds": 60, "assumed": "longer here"}]}
    timer = merged(overlay)["timer"][0]
    assert "source" not in timer
    number = next(o for o in numbers(merged(overlay)) if o.key == "timer(limit).seconds")
    assert (number.value, number.status, number.text) == (60, "assumed", "longer here")


def test_the_origin_of_one_number_is_replaced_with_it():
    overlay = {"job": {"copies": {"value": 5, "assumed": "more room"}}}
    assert merged(overlay)["job"]["copies"] == {"value": 5, "assumed": "more room"}
    assert merged(overlay)["job"]["launch_seconds"] == 60


def test_a_list_of_numbers_is_replaced_whole():
    raw = merged({"signal": [{"name": "state", "probabilities": [0.8, 0.2]}]})
    assert tiny.named(raw["signal"], "state")["probabilities"] == [0.8, 0.2]


def test_neither_side_is_changed_by_a_merge():
    model, overlay = tiny.raw(), {"timer": [{"name": "limit", "seconds": 60, "assumed": "a test"}]}
    merge(model, overlay)["timer"][0]["seconds"] = 1
    assert model == tiny.raw()
    assert overlay["timer"][0]["seconds"] == 60


def test_later_overlays_win():
    model = load("reference", overlays=["episode", "incident"])
    assert model.spec.prior.kind == "incident"
    assert load("reference", overlays=["incident", "episode"]).spec.prior.kind == "episode"


def test_an_overlay_changes_the_fingerprint():
    assert load("reference", overlays=["episode"]).sha256 != load("reference").sha256


def test_an_overlay_may_be_a_path(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text('[[timer]]\nname = "watchdog"\nseconds = 1800\nassumed = "as our job sets it"\n')
    model = load("reference", overlays=[path])
    assert {t.name: t.seconds for t in model.spec.timer}["watchdog"] == 1800
    assert model.overlays == (path,)
    with pytest.raises(UnknownModel, match="neither a file nor one of"):
        load("reference", overlays=[tmp_path / "none.toml"])


def test_overlays_ship_with_the_model():
    assert set(OVERLAYS) >= {"episode", "incident", *(f"site_{profile}" for profile in PROFILES)}


@pytest.mark.parametrize("name", OVERLAYS)
def test_a_shipped_overlay_holds_and_says_where_its_numbers_come_from(name):
    model = load("reference", overlays=[name])
    check_overlay(read_toml(models_folder() / "overlays" / f"{name}.toml"), model.raw, name)


def test_a_drill_is_crowded_and_nearly_even_over_modes():
    plain, drill = (load("reference", overlays=["episode", *more]) for more in ([], ["drill"]))
    assert drill.spec.prior.incidents_per_hour > 3.0 * plain.spec.prior.incidents_per_hour
    assert spread_of_modes(drill) < 3.0 < spread_of_modes(plain)


def spread_of_modes(model):
    """How many times as often as the rarest mode the most frequent one is."""
    mix = incident_mix(model.network, model.spec.prior.uniform_share)
    modes = [block.variant.mode for block in model.network.blocks]
    shares = [mix[[one == mode.name for one in modes]].sum() for mode in model.spec.mode]
    return max(shares) / min(shares)


def published(profile):
    """A row of the table of site profiles as {column: number}."""
    lines = (FACTS / "mode_mix_profiles.csv").read_text(encoding="utf-8").splitlines()
    row = next(row for row in csv.DictReader(lines) if row["profile"] == profile)
    return {key: float(value) for key, value in row.items() if value.replace(".", "").isdigit()}


def group(row, name):
    return next(value for key, value in row.items() if key.startswith(name))


PROFILES = ("llama3", "byterobust", "minder", "crusoe", "ft_hsdp")
GROUPS = {
    "gpu_xid": ("gpu_xid",),
    "ecc_pressure": ("ecc_pressure",),
    "pcie_degradation": ("pcie_degradation",),
    "thermal_throttling": ("thermal_throttling",),
    "network_group": ("ib_link_flap", "incast_congestion", "routing_failure"),
    "nccl_watchdog": ("nccl_watchdog_timeout",),
    "software_group": ("cuda_oom", "version_mismatch", "stuck_collective"),
    "checkpoint": ("checkpoint_io_hang",),
    "silent_group": ("nan_injection", "corrupted_state"),
    "straggler": ("straggler",),
}
# What one of the published numbers stands for, per 1000 node-days, and the floor of what is not reported.
LEVELS = {
    "llama3": (3.79 / 419, 0.038),
    "byterobust": (3.79 / 13041, 0.038),
    "minder": (0.0379, 0.038),
    "crusoe": (0.0379, 0.038),
    "ft_hsdp": (0.023, 0.023),
}


def rates(name):
    return {mode.name: mode.rate_per_1000_node_days for mode in load("reference", overlays=[name]).spec.mode}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_site_profile_follows_the_published_groups(profile):
    row, found, (level, floor) = published(profile), rates(f"site_{profile}"), LEVELS[profile]
    for name, modes in GROUPS.items():
        together = sum(found[mode] for mode in modes)
        counted = next((value for key, value in row.items() if key.startswith(name)), None)
        if profile == "crusoe" and name in ("gpu_xid", "ecc_pressure"):
            counted = 61.0 * {"gpu_xid": 165, "ecc_pressure": 93}[name] / 258
        floors = sum(found[mode] == floor for mode in modes)
        expected = floor * len(modes) if counted is None else counted * level
        # A floor inside a reported group is taken from the group, or added where the group is one report of one kind.
        assert together == pytest.approx(expected, abs=0.02 * expected + floors * floor), (name, together, expected)


def test_the_profiles_differ():
    found = [tuple(rates(f"site_{profile}").values()) for profile in PROFILES]
    assert len(set(found)) == len(PROFILES)
