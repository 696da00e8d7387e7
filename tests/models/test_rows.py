import pytest

from clusterorch.models.rows import Rows, Situation, matching_rule
from clusterorch.models.spec import JOB_CLASSES, PHASES, RELATIONS, ModelSpec, Signal
from tests.models import tiny

SPEC = tiny.spec()


def situation(*active, severity=1, phase="step", job="moving", relation="rest"):
    return Situation(
        frozenset(active), severity, PHASES.index(phase), JOB_CLASSES.index(job), RELATIONS.index(relation)
    )


def row(name, *active, spec=SPEC, **where):
    signal = next(i for i, s in enumerate(spec.signal) if s.name == name)
    rows = Rows(spec)
    index = rows.of(signal, situation(*active, **where))
    return rows.table()[index].tolist()


def test_without_a_rule_the_background_counts():
    assert row("heat")[:3] == [60.0, 4.0, 0.01]
    assert row("alarm")[:2] == pytest.approx([0.999, 0.001])
    assert row("timeout")[:5] == [0.001, 0.9, 0.9, 0.9, 0.0001]
    assert row("first")[:4] == [0.001, 1.0, 1.0, 1.0]


def test_a_rule_replaces_only_what_it_gives():
    assert row("heat", job="down")[:3] == [40.0, 4.0, 0.01]
    assert row("timeout", "told")[:5] == [0.9, 0.9, 0.9, 0.9, 0.0001]
    assert row("first", "gave_up")[:4] == [0.9, 3.0, 2.0, 1.0]


@pytest.mark.parametrize(("severity", "mean"), [(0, 70.0), (1, 80.0), (2, 90.0)])
def test_a_list_is_by_severity(severity, mean):
    assert row("heat", "hot", severity=severity, relation="site")[0] == mean


def test_the_first_rule_that_matches_counts():
    assert row("heat", "hot", job="down", relation="site")[0] == 80.0
    assert row("heat", "hot", job="down", relation="node")[0] == 40.0
    raw = tiny.raw()
    tiny.named(raw["signal"], "heat")["when"].reverse()
    assert row("heat", "hot", job="down", relation="site", spec=ModelSpec.model_validate(raw))[0] == 40.0


def test_every_mechanism_of_a_rule_must_be_active():
    own = pytest.approx(0.001)
    assert row("alarm", "hot", relation="site")[1] == own
    assert row("alarm", "stuck", relation="site")[1] == own
    assert row("alarm", "hot", "stuck", relation="site")[1] > 0.5


def test_presence_is_contaminated_by_the_background():
    assert row("alarm", "hot", "stuck", severity=2, relation="site")[1] == pytest.approx(0.9 * 0.7 + 0.1 * 0.001)
    assert row("alarm", "hot", relation="node")[1] == pytest.approx(0.9 * 0.05 + 0.1 * 0.001)


def test_a_table_is_contaminated_by_the_background():
    mixed = [0.8 * r + 0.2 * b for r, b in zip([0.1, 0.1, 0.3, 0.3, 0.2], [0.9, 0.04, 0.03, 0.02, 0.01], strict=True)]
    assert row("skips", "humming")[:5] == pytest.approx(mixed)
    assert row("skips")[:5] == [0.9, 0.04, 0.03, 0.02, 0.01]


def test_a_table_may_be_by_severity():
    raw = tiny.raw()
    rule = {"mechanism": "hot", "probabilities": [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]}
    tiny.named(raw["signal"], "state")["when"].insert(0, rule)
    spec = ModelSpec.model_validate(raw)
    assert [row("state", "hot", severity=s, spec=spec)[1] for s in range(3)] == [0.1, 0.4, 0.8]


def signal(**when):
    return Signal.model_validate(
        {
            "name": "x", "title": "x", "stream": "smi", "entity": "gpu", "family": "presence",
            "probability": 0.1, "when": [{"probability": 0.5, **when}],
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("when", "matching", "not_matching"),
    [
        ({"mechanism": "a"}, situation("a", "b"), situation("b")),
        ({"mechanisms": ["a", "b"]}, situation("a", "b"), situation("a")),
        ({"mechanism": "a", "mechanisms": ["b"]}, situation("a", "b"), situation("b")),
        ({"absent_mechanisms": ["a"]}, situation("b"), situation("a", "b")),
        ({"phases": ["save", "load"]}, situation(phase="load"), situation(phase="step")),
        ({"job": "halted"}, situation(job="halted"), situation(job="down")),
        ({"where": "site"}, situation(relation="site"), situation(relation="node")),
        ({"where": "node"}, situation(relation="node"), situation(relation="site")),
        ({"where": "rest"}, situation(relation="rest"), situation(relation="node")),
        ({"where": "others"}, situation(relation="node"), situation(relation="site")),
        ({"where": "others"}, situation(relation="rest"), situation(relation="site")),
    ],
)
def test_a_rule_asks_for_all_its_conditions(when, matching, not_matching):
    assert matching_rule(signal(**when), matching) is not None
    assert matching_rule(signal(**when), not_matching) is None


def test_where_all_is_everywhere():
    for relation in RELATIONS:
        assert matching_rule(signal(mechanism="a"), situation("a", relation=relation)) is not None


def test_equal_rows_are_one_row_and_remember_why():
    rows = Rows(SPEC)
    timeout = next(i for i, s in enumerate(SPEC.signal) if s.name == "timeout")
    assert rows.of(timeout, situation()) == rows.of(timeout, situation("hot", relation="site"))
    told = rows.of(timeout, situation("told"))
    assert rows.why[told] == ("told",)
    assert rows.signals().tolist() == [timeout, timeout]
