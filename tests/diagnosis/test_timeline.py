"""What of the logs is evidence, in which orders, about which places; and that floods stay bounded."""

from __future__ import annotations

import functools
import time
from types import SimpleNamespace

import numpy as np
import pytest

from clusterorch.diagnosis import timeline
from clusterorch.diagnosis.diagnose import _mixture, _Run, default_incident_model, diagnose
from clusterorch.diagnosis.timeline import alignments, distinct, entries, thinned, tracks
from clusterorch.diagnosis.universe import MOST_SITES, build_universe, most_telling_first
from clusterorch.inference.excerpts import Excerpts, Kind, Mark, Shown
from clusterorch.inference.plan import make_plan
from clusterorch.inference.priors import incident_mix
from clusterorch.models.layout import ENTITY_KINDS, Layout
from clusterorch.models.spec import PHASES
from clusterorch.telemetry.readings import JOB, EntityRef, Ingested, PhaseMark, Place, Reading


@functools.cache
def model():
    return default_incident_model()


def reading(order=0, signal="progress", value=1, entity=JOB, *, file="a", text=None, at=None, after=None, line=None):
    clock = "none" if at is None else "wall"
    body = f"line {order}" if text is None else text
    number = order if line is None else line
    return Reading(file, number, at, order, "nccl", signal, value, entity, body, "p", clock, after)


def rank(number, host=None):
    return EntityRef("rank", host, None, number)


# ---------------------------------------------------------------- copies


def test_a_line_under_another_rank_is_a_copy():
    first, again = reading(0, text="iteration 5"), reading(1, text="[rank1]: iteration 5")
    assert distinct([first, again]) == [first]


def test_a_copy_that_names_its_own_speaker_says_something_new():
    both = [reading(i, "cuda_error", "unknown", rank(i), text=f"[rank{i}]: CUDA error") for i in range(2)]
    assert distinct(both) == both


def test_the_same_words_at_another_time_are_another_line():
    both = [reading(i, text="retrying", at=10.0 * i) for i in range(2)]
    assert distinct(both) == both


def test_a_copy_tells_no_sample_that_the_line_itself_did_not():
    line, copied = reading(0, text="iteration 5"), reading(1, "step_time", 0.1, text="iteration 5", line=1)
    own = reading(0, "step_time", 0.2, text="iteration 5", line=0)
    assert distinct([line, own, copied]) == [line, own]


def test_a_sample_that_two_lines_tell_is_taken_once():
    once, again = reading(0, "step_time", 0.1, text="a"), reading(1, "step_time", 0.1, text="b")
    assert distinct([once, again]) == [once]


# ---------------------------------------------------------------- samples


@pytest.mark.parametrize(
    ("signal", "value", "expected"),
    [
        ("ecc_corrected", 1, 1), ("ecc_corrected", 9, 2), ("pcie_replay", 99, 3), ("congestion", 100, 4),
        ("ecc_corrected", 9_612_004_113, 4), ("pcie_below_max", 7, 1), ("temperature", 71.5, 71.5),
    ],
)  # fmt: skip
def test_a_number_counts_by_its_class_however_large(signal, value, expected):
    gpu = EntityRef("link" if signal == "congestion" else "gpu", "n", "mlx5_0" if signal == "congestion" else None, 0)
    universe = build_universe([gpu])
    network = model().with_layout(universe.layout).hidden_network
    (entry,) = entries([reading(0, signal, value, gpu)], network, universe, [])
    assert entry.item.values is not None
    assert entry.item.values[~np.isnan(entry.item.values)].tolist() == [expected]


# ---------------------------------------------------------------- orders


def test_files_on_one_clock_are_one_track_in_order_of_time():
    given = [reading(0, at=5.0, file="a"), reading(1, at=3.0, file="b"), reading(2, at=9.0, file="b")]
    assert [[r.order for r in track] for track in tracks(given)] == [[1, 0, 2]]


def test_untimed_lines_of_a_timed_file_stay_with_it():
    given = [reading(0, at=5.0), reading(1, after=5.0), reading(2, at=6.0), reading(3, file="b", at=5.5)]
    assert [[r.order for r in track] for track in tracks(given)] == [[0, 1, 3, 2]]


@pytest.mark.parametrize("files", [("a", "b"), ("b", "a")])
def test_ties_of_time_do_not_turn_on_names(files):
    given = [reading(0, "xid", "lost", at=5.0, file=files[0]), reading(1, "progress", at=5.0, file=files[1])]
    assert [[r.signal for r in track] for track in tracks(given)] == [["progress", "xid"]]


@pytest.mark.parametrize("turn", range(5))
def test_candidate_orders_do_not_turn_on_names_or_on_the_order_of_files(turn):
    signals = ["progress", "xid", "closing", "loss", "hung_task"]
    signals = signals[turn:] + signals[:turn]
    given = [reading(i, s, file=f"f{i}") for i, s in enumerate(signals)]
    found = [[r.signal for r in candidate] for candidate in alignments(tracks(given))]
    in_order = tracks([reading(i, s, file=f"{i}") for i, s in enumerate(sorted(signals))])
    usual = [[r.signal for r in candidate] for candidate in alignments(in_order)]
    assert found == usual
    assert len(found) == timeline.MOST_ALIGNMENTS + 1
    assert {candidate[0] for candidate in found[:-1]} == set(signals)


def test_up_to_three_tracks_come_in_every_order():
    found = alignments([[reading(i, file=f"f{i}")] for i in range(3)])
    assert len({tuple(r.order for r in candidate) for candidate in found}) == 6


def test_gaps_are_slices_and_parts_of_slices_between_times_of_one_clock():
    given = [reading(i, "xid", "lost", EntityRef("gpu", "n", None, i), at=t) for i, t in enumerate((0.3, 15.3, 59.9))]
    universe = build_universe([r.entity for r in given])
    made = entries(given, model().with_layout(universe.layout).hidden_network, universe, [])
    assert [entry.item.gap for entry in made[1:]] == pytest.approx([1.0, 44.6 / 15.0])


def test_a_line_is_of_the_phase_last_marked_before_it_in_its_file():
    marks = [PhaseMark("a", o, None, o, phase, "", "p") for o, phase in ((2, "load"), (4, "step"), (6, "save"))]
    given = [reading(o, "cuda_error", "unknown", rank(o)) for o in (1, 2, 3, 5, 7)]
    given.append(reading(8, "cuda_error", "unknown", rank(8), file="b"))
    universe = build_universe([r.entity for r in given])
    made = entries(given, model().with_layout(universe.layout).hidden_network, universe, marks)
    told = [None if (phase := entry.item.phase) is None else PHASES[phase] for entry in made]
    assert told == [None, "load", "load", "step", "save", "save"]


def test_orders_are_averaged_by_how_well_they_explain_the_lines():
    evidence, beliefs = [-3.0, -1.0, -2.0, -1.5], np.eye(4)
    filters = [SimpleNamespace(posterior=lambda b=b: SimpleNamespace(vector=b)) for b in beliefs]
    runs = [_Run([], f, e) for e, f in zip(evidence, filters, strict=True)]  # type: ignore[arg-type]
    mixed, best = _mixture(iter(runs))
    weight = np.exp(evidence)
    np.testing.assert_allclose(mixed, weight / weight.sum(), rtol=1e-12)
    assert best is runs[1]


# ---------------------------------------------------------------- places


def test_a_link_without_a_name_is_any_of_its_host():
    named = [EntityRef("link", "n1", "mlx5_0"), EntityRef("link", "n2", "mlx5_0"), EntityRef("link", "n2", "mlx5_1")]
    universe = build_universe([*named, EntityRef("link", "n1")])
    one, two = universe.entities(EntityRef("link", "n1")), universe.entities(EntityRef("link", "n2"))
    assert universe.entities(named[0]) == (universe.index[named[0]],)
    assert universe.index[named[0]] in one
    assert len(one) == 2  # the named one and another
    assert set(two) > {universe.index[ref] for ref in named[1:]}
    assert len(two) == 3
    assert not set(one) & set(two)
    assert universe.entities(EntityRef("link")) == universe.entities(EntityRef("link", "n3")) == ()
    assert universe.entities(JOB) == (0,)


def test_port_errors_of_unnamed_links_point_to_their_host():
    given = [
        reading(i, "async_event", value, EntityRef("link", "n1"))
        for i, value in enumerate(("port_error", "device_fatal"))
    ]
    given += [reading(9, "closing"), reading(10, "peer_closed", 1, rank(3, "n2"))]
    found = diagnose(model(), Ingested(readings=given))
    on = {host: sum(p for kind, name, p in found.sites if kind == "link" and host in name) for host in ("n1", "n2")}
    assert found.leading == "ib_link_flap"
    assert on["n1"] > 0.8 > 20 * on["n2"]


def test_a_rank_and_the_gpu_it_sits_on_are_one_unit():
    gpu = EntityRef("gpu", None, "0000:61:00")
    universe = build_universe([gpu, rank(3)], [Place(rank=3, pci="0000:61:00")])
    assert universe.index[gpu] == universe.index[rank(3)]
    assert universe.layout.gpus == 2  # that unit, and another
    apart = build_universe([gpu, rank(3)])
    assert apart.index[gpu] != apart.index[rank(3)]


def test_what_few_others_say_comes_first():
    many = [reading(i, "watchdog_timeout", 1, rank(i)) for i in range(20)]
    lost = EntityRef("gpu", "z", "0000:61:00")
    told = [*many, reading(21, "xid", "lost", lost), reading(22, "collective_mismatch", 1, rank(7))]
    assert most_telling_first(told)[:2] == [lost, rank(7)]
    assert len(most_telling_first(told)) == 21


def test_a_universe_has_bounded_room_and_keeps_the_most_telling():
    many = [reading(i, "watchdog_timeout", 1, rank(i, f"n{i // 8}")) for i in range(4000)]
    lost = EntityRef("gpu", "z", "0000:61:00")
    refs = most_telling_first([*many, reading(4001, "xid", "lost", lost)])
    universe = build_universe(refs)
    assert universe.layout.count("gpu") <= MOST_SITES
    assert lost in universe.index
    told = sum(ref.kind == "rank" for ref in universe.index)
    assert told + universe.left_out == 4000
    assert universe.entities(rank(3999, "n499")) in {(), (universe.index.get(rank(3999, "n499"), -1),)}


def test_a_line_about_one_of_several_weighs_as_their_mean():
    grounded = model().with_layout(Layout(2, 3))
    network = grounded.hidden_network
    plan = make_plan(network)
    present = {kind: np.ones(grounded.layout.count(kind), dtype=bool) for kind in ENTITY_KINDS}
    kind = Kind(network.signal_index("nic_failover"), 1)

    def ratio(entities):
        return Excerpts(network, plan, present, 0.02).ratios(Mark(kind, entities), PHASES.index("step"), Shown())

    one, other, both = (np.exp(ratio(entities)) for entities in ((1,), (2,), (1, 2)))
    np.testing.assert_allclose(both, 0.5 * (one + other), rtol=1e-12)
    assert not np.allclose(one, other)


# ---------------------------------------------------------------- nothing, and too much


def test_without_a_line_the_posterior_is_the_prior():
    found = diagnose(model(), Ingested())
    prior, network = model().spec.prior, model().hidden_network
    mix = incident_mix(network, prior.uniform_share)
    for mode in model().modes:
        share = sum(m for m, b in zip(mix, network.blocks, strict=True) if b.variant.mode == mode)
        assert found.modes[mode] == pytest.approx((1.0 - prior.healthy) * share, abs=1e-12)
    assert found.modes["healthy"] == pytest.approx(prior.healthy, abs=1e-12)
    assert [finding.kind for finding in found.findings] == ["nothing_recognised"]
    assert not found.weights


def test_lines_that_say_nothing_new_leave_the_prior():
    found = diagnose(model(), Ingested(readings=[reading(0, "first_error", 1, rank(0))]))
    assert found.modes["healthy"] == pytest.approx(model().spec.prior.healthy, abs=1e-12)


def test_a_kind_shown_again_is_no_evidence():
    lost = EntityRef("gpu", "n", "0000:61:00")
    once = [reading(0, "xid", "lost", lost, text="first"), reading(1, "closing", text="end")]
    more = [once[0], *(reading(i, "xid", "lost", lost, text=f"again {i}") for i in range(2, 40)), once[1]]
    assert diagnose(model(), Ingested(readings=more)).modes == diagnose(model(), Ingested(readings=once)).modes


def test_samples_are_thinned_evenly_and_marks_stay():
    network = model().hidden_network
    given = [reading(i, "step_time", 0.01 * i) for i in range(1000)]
    given.insert(500, reading(5000, "xid", "lost", EntityRef("gpu", "n", None, 1)))
    kept = thinned(given, network, 50)
    values = [r.value for r in kept if r.signal == "step_time"]
    assert len(kept) == 51
    assert values[0] == 0.0
    assert values[-1] == given[-1].value
    assert np.diff(values).max() < 1.2 * np.diff(values).min() + 0.02
    assert thinned(given, network, 2000) == given


@pytest.mark.long
def test_a_flood_about_a_large_cluster_is_diagnosed_in_bounded_time():
    many = [reading(i, "watchdog_timeout", 1, rank(i, f"n{i // 8}"), at=600.0 + 0.001 * i) for i in range(4000)]
    many += [reading(5000 + i, "step_time", 0.001 * (i % 7), at=float(i // 100)) for i in range(10_000)]
    start = time.perf_counter()
    found = diagnose(model(), Ingested(readings=many))
    assert time.perf_counter() - start < 60.0
    assert {finding.kind for finding in found.findings} >= {"too_many_entities", "too_many_samples"}
    assert sum(found.modes.values()) == pytest.approx(1.0)
