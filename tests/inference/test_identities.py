"""The posterior is right in law under all three protocols, and the identities notice when it is not.

False alarms: 1e-6 a comparison, see `tests.inference.calibration`.  Seeds are fixed; a wrong model is
given as many episodes as put at least one statistic well beyond its limit.
"""

from __future__ import annotations

import pytest

from tests.inference.calibration import Ledger, table
from tests.inference.episodes import (
    EXCERPT,
    INFO_SHARE,
    Raw,
    excerpt_world,
    live,
    live_world,
    pasted,
)
from tests.inference.worlds import LIMITS


def assert_right(title: str, ledger: Ledger) -> None:
    found = ledger.statistics()
    print(table(f"{title}: {len(ledger.column('rank'))} episodes", found))
    assert all(s.passes for s in found), table(title, found)
    predictions = ledger.column("final").size
    error = next(s.value for s in found if s.name == "calibration error, all labels")
    assert error < 0.01 or predictions < 20_000


def assert_noticed(title: str, ledger: Ledger) -> None:
    """More than the count of impossible truths must give it away."""
    found = ledger.statistics()
    print(table(f"{title}: {len(ledger.column('rank'))} episodes", found))
    assert not all(s.passes for s in found[1:]), table(title, found)


def signal(raw: Raw, name: str) -> Raw:
    return next(s for s in raw["signal"] if s["name"] == name)


def table_entry(raw: Raw) -> None:
    rule = next(w for w in signal(raw, "link_errors")["when"] if w["mechanism"] == "retransmitting")
    rule["probabilities"] = rule["probabilities"][::-1]


def rule_removed(raw: Raw) -> None:
    own = signal(raw, "link_errors")
    own["when"] = [w for w in own["when"] if w["mechanism"] != "retransmitting"]


def parent_dropped(raw: Raw) -> None:
    raw["edge"] = [e for e in raw["edge"] if (e["from"], e["to"]) != ("gpu_xid.engine_fault", "rank_crashed")]


def rate_off(raw: Raw) -> None:
    raw["prior"]["incidents_per_hour"] /= 3


def test_complete_logs():
    world = live_world()
    assert_right("complete", live(world, world, 10_000, seed=1))


def test_covered_logs():
    world = live_world()
    assert_right("covered", live(world, world, 10_000, seed=2, covered=True, share=INFO_SHARE))


def test_excerpts():
    world = excerpt_world()
    assert_right("excerpt", pasted(world, world, 1_500, seed=3, again=0.2))


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["complete", "covered", "excerpt"])
def test_a_right_posterior_at_length(protocol):
    if protocol == "excerpt":
        world = excerpt_world()
        ledger = pasted(world, world, 4_000, seed=13, again=0.2)
    else:
        world, covered = live_world(), protocol == "covered"
        share = INFO_SHARE if covered else None
        ledger = live(world, world, 20_000, seed=11, covered=covered, share=share)
    assert_right(protocol, ledger)


@pytest.mark.parametrize("edit", [table_entry, rule_removed, parent_dropped, rate_off])
def test_a_wrong_model_is_noticed(edit):
    assert_noticed(edit.__name__, live(live_world(), live_world(edit), 4_000, seed=4))


def test_a_timer_off_by_one_is_noticed():
    late = LIMITS["watchdog"] + 15.0
    assert_noticed("timer", live(live_world(), live_world(watchdog=late), 3_000, seed=5))


def test_evidence_a_slice_late_is_noticed():
    assert_noticed("late", live(live_world(), live_world(), 3_000, seed=6, late=1))


def test_silence_taken_for_news_is_noticed():
    assert_noticed("taken for complete", live(live_world(), live_world(), 3_000, seed=7, covered=True))


def healthy_off(raw: Raw) -> None:
    raw["prior"]["healthy"] = 0.4


def test_a_wrong_excerpt_prior_is_noticed():
    assert_noticed("excerpt prior", pasted(excerpt_world(), excerpt_world(healthy_off), 500, seed=8))


def test_lines_trusted_too_much_are_noticed():
    """Four lines of five name an unrelated entity; the believer thinks it is one in fifty."""
    careless = EXCERPT.model_copy(update={"entity_contamination": 0.8})
    assert_noticed("whom", pasted(excerpt_world(), excerpt_world(), 500, seed=10, again=0.3, drawn_by=careless))


def test_items_read_one_place_too_late_are_noticed():
    assert_noticed("excerpt shifted", pasted(excerpt_world(), excerpt_world(), 500, seed=9, swap=True))
