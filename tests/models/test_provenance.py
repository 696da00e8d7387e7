import pytest

from clusterorch.errors import InvalidModel
from clusterorch.models import load
from clusterorch.models.provenance import Summary, check_overlay, numbers, summary, uncited
from tests.models import tiny


def account(raw):
    return {origin.key: origin for origin in numbers(raw, "tiny.toml")}


def test_every_number_of_the_tiny_model_is_found():
    def count(value, key=""):
        if isinstance(value, dict):
            return sum(count(v, k) for k, v in value.items() if k not in ("sources", "version"))
        if isinstance(value, list):
            tables = [entry for entry in value if isinstance(entry, dict)]
            return sum(map(count, tables)) if tables else int(any(map(count, value)))
        return int(isinstance(value, (int, float)) and not isinstance(value, bool))

    assert len(numbers(tiny.raw())) == count(tiny.raw()) > 50


@pytest.mark.parametrize(
    ("key", "text", "status"),
    [
        ("job.copies", "paper table 2", "sourced"),  # its own
        ("job.launch_seconds", "a test", "assumed"),  # its table's
        ("mode(fault).rate_per_1000_node_days", "paper: table 1", "sourced"),
        (
            "mode(fault).variant(graded).severity",
            "paper: table 1",
            "sourced",
        ),  # the table that holds the list
        ("mode(fault).variant(plain).share", "half", "assumed"),  # nearest wins
        ("signal(heat).when[0].mean", "a test", "assumed"),
        ("signal(heat).when[1].mean", "paper", "sourced"),
        ("signal(heat).outlier.sd", "a test", "assumed"),
        ("edge(hot>stuck).delay.erlang", "a test", "assumed"),  # stages and mean in one
    ],
)
def test_the_nearest_origin_counts(key, text, status):
    origin = account(tiny.raw())[key]
    assert (origin.text, origin.status) == (text, status)


def test_a_version_is_no_quantity():
    assert not any(key.endswith("version") for key in account(tiny.raw()))


def test_a_number_with_an_origin_of_its_own_shows_its_value():
    origin = account(tiny.raw())["job.copies"]
    assert (origin.value, origin.table) == (3, "job")


@pytest.mark.parametrize(
    ("key", "unit"),
    [
        ("job.launch_seconds", "s"),
        ("mode(fault).rate_per_1000_node_days", "/1000 node-days"),
        ("benign(noise).recovers_per_hour", "/h"),
        ("mechanism(stuck).heals", "s"),
        ("stream(smi).delay", "slices"),
        ("signal(heat).when[0].mean", "C"),
        ("signal(power).baseline", "W"),
        ("signal(power).sd", "log ratio"),
        ("signal(alarm).probability", ""),
    ],
)
def test_a_key_tells_its_unit(key, unit):
    assert account(tiny.raw())[key].unit_hint == unit


@pytest.mark.parametrize("table", ["timer", "stream", "mode", "benign", "mechanism", "edge", "signal"])
def test_a_number_without_an_origin_is_refused_wherever_it_stands(table):
    raw = tiny.raw()
    for entry in raw[table]:
        for name in ("source", "derived", "assumed"):
            entry.pop(name, None)
    with pytest.raises(InvalidModel, match="has no origin") as caught:
        numbers(raw, "tiny.toml")
    assert caught.value.key.startswith(f"{table}(")


def test_a_source_without_numbers_must_cite_a_key_too():
    raw = tiny.raw()
    tiny.named(raw["mechanism"], "gave_up")["source"] = "somebody said so"
    with pytest.raises(InvalidModel, match="not a key"):
        numbers(raw, "tiny.toml")


def test_a_key_that_only_begins_alike_is_not_cited():
    raw = tiny.raw()
    raw["timer"][0]["source"] = "papers: section 3"
    with pytest.raises(InvalidModel, match="'papers'"):
        numbers(raw, "tiny.toml")


def test_counts_add_up():
    origins = numbers(tiny.raw())
    counts = summary(origins)
    assert counts.sourced == sum(o.status == "sourced" for o in origins) > 0
    assert counts.sourced + counts.derived + counts.assumed == counts.quantities == len(origins)
    assert str(Summary(8, 1, 1, 6)) == "8 quantities: 1 sourced (12 %), 1 derived (12 %), 6 assumed (75 %)"
    assert Summary(0, 0, 0, 0).assumed_share == 0.0


def test_a_source_that_nothing_mentions_is_known():
    raw = tiny.raw()
    raw["sources"]["spare"] = "nobody reads it"
    assert uncited(raw) == ["spare"]


def test_an_overlay_may_not_borrow_the_origin_of_what_it_replaces():
    overlay = {"stream": [{"name": "smi", "lost": 0.5}]}
    with pytest.raises(InvalidModel) as caught:
        check_overlay(overlay, tiny.raw(), "lossy.toml")
    assert (caught.value.file, caught.value.key) == ("lossy.toml", "stream(smi).lost")
    overlay["stream"][0]["source"] = "paper figure 2"
    check_overlay(overlay, tiny.raw(), "lossy.toml")


def test_the_reference_model_says_where_its_numbers_come_from():
    counts = summary(numbers(load("reference").raw))
    assert counts.quantities > 300
    assert counts.assumed_share <= 1 / 3
