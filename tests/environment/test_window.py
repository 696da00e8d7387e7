"""Rows of the window are written once, hold what has arrived since the row before, and tell how old it is."""

from __future__ import annotations

import numpy as np
import pytest

from clusterorch.environment.cluster import GPUCluster
from clusterorch.environment.episodes import Episodes
from clusterorch.environment.published import NODE_COLUMNS, job_columns
from clusterorch.environment.vector import GPUClusterVector
from clusterorch.environment.window import MOST_DEVIATIONS, OLDEST
from clusterorch.models.spec import JOB_CLASSES, PHASES, STREAMS
from tests.environment.worlds import calm, cold, episodes_in, hot, random_moves

ROWS = 5


class Diary:
    """Keeps every slice of every instance as it was measured."""

    def __init__(self, batch: int) -> None:
        self.values: list[list[np.ndarray]] = [[] for _ in range(batch)]
        self.arrival: list[list[np.ndarray]] = [[] for _ in range(batch)]

    def listen(self, episodes: Episodes, running: np.ndarray) -> None:
        for b in np.flatnonzero(running):
            self.values[b].append(episodes.world.state.values[b].copy())
            self.arrival[b].append(episodes.world.state.arrival[b].copy())


def standard(signal, x: float) -> float:
    """A sample in deviations from the declared background, at the middle severity, and not too many of them."""
    mean, sd = (v[1] if isinstance(v, list) else v for v in (signal.mean, signal.sd))
    return float(np.clip((x - (mean or 0.0)) / sd, -MOST_DEVIATIONS, MOST_DEVIATIONS))


def told(signal, samples: list[tuple[int, np.ndarray]], rank: slice | None) -> list[float]:
    """The columns of a signal, from what has arrived: (slice, values) each.  rank: of a first speaker on a node."""
    family, classes = signal.family, {"presence": 2, "chorus": 2, "count": 5}.get(signal.family, len(signal.values))
    everything = [x for _, values in samples for x in values]
    if family == "first_speaker":
        return [float(any(rank.start <= x < rank.stop for x in everything))]
    if family == "categorical":
        return [float(k in everything) for k in range(1, classes)]
    if family not in ("gaussian", "log_ratio"):
        return [max([x for x in everything if not np.isnan(x)], default=0.0) / (classes - 1)]
    taken = [(t, values[np.isfinite(values)]) for t, values in samples if np.isfinite(values).any()]
    hosted = signal.entity in ("gpu", "rank", "link", "node")
    if not taken:
        return [0.0] * (3 if hosted else 1)
    newest = max(taken, key=lambda one: one[0])[1]
    return [standard(signal, f(newest)) for f in ((np.min, np.mean, np.max) if hosted else (np.mean,))]


def row_of(episodes: Episodes, diary: Diary, b: int, since: int, now: int) -> tuple[np.ndarray, np.ndarray]:
    """[N, columns], [columns] what the telemetry of a row should be: cells arriving in slices since..now - 1."""
    network = episodes.world.network
    layout, nodes = network.layout, [[] for _ in range(network.layout.nodes)]
    job: list[float] = []

    def arrived(stream: str, collector: int, part: slice) -> list[tuple[int, np.ndarray]]:
        at = STREAMS.index(stream)
        return [
            (t, diary.values[b][t][part])
            for t in range(now)
            if since <= diary.arrival[b][t][at, collector] < now
        ]  # fmt: skip

    for s, signal in enumerate(network.spec.signal):
        part = network.slice_of(s)
        if signal.entity not in ("gpu", "rank", "link", "node"):
            job += told(signal, arrived(signal.stream, -1, part), None)
            continue
        per_node = layout.count(signal.entity) // layout.nodes
        for n in range(layout.nodes):
            mine = slice(n * per_node, (n + 1) * per_node)
            if signal.family == "first_speaker":
                nodes[n] += told(signal, arrived(signal.stream, -1, part), mine)
            else:
                at = slice(part.start + mine.start, part.start + mine.stop)
                nodes[n] += told(signal, arrived(signal.stream, n, at), None)
    for collector, out in enumerate([*nodes, job]):
        for stream in range(len(STREAMS)):
            there = [t for t in range(now) if 0 <= diary.arrival[b][t][stream, collector] < now]
            newest = max(there, default=-1)
            out += [float(newest >= since), min(now - 1 - newest, OLDEST) / OLDEST if there else 1.0]
    return np.array(nodes), np.array(job)


@pytest.mark.parametrize(("model", "decision"), [(hot("2x2"), 4), (hot("1x2"), 1), (cold("2x2"), 3)], ids=str)
def test_a_row_holds_what_has_arrived_since_the_row_before(model, decision):
    episodes = episodes_in(model, 3, seed=decision, observe="raw", decision=decision, hours=0.4, rows=ROWS)
    diary, rng, late, full = Diary(3), np.random.default_rng(1), 0, 0
    episodes.listeners.append(diary)
    while (episodes.world.books.time < episodes.horizon).all():
        since = episodes.world.books.time.copy()
        episodes.decide(random_moves(rng, episodes.world.masks()), np.ones(3, dtype=bool))
        for b in range(3):
            now = int(episodes.world.books.time[b])
            nodes, job = row_of(episodes, diary, b, int(since[b]), now)
            columns = nodes.shape[1], job.shape[0]
            np.testing.assert_allclose(episodes.window.node_rows[b, -1, :, : columns[0]], nodes, atol=1e-6)
            np.testing.assert_allclose(episodes.window.job_rows[b, -1, : columns[1]], job, atol=1e-6)
            late += sum(since[b] <= x < now for t in range(since[b]) for x in diary.arrival[b][t].ravel())
            full += int((nodes != 0.0).sum())
    assert late > (30 if model is not cold("2x2") else 5)
    assert full > 1000


@pytest.mark.parametrize("decision", [1, 4])
def test_rows_never_change_once_written_and_move_up(decision):
    episodes = episodes_in(hot("2x2"), 4, seed=3, observe="raw", decision=decision, hours=0.4, rows=ROWS)
    window, rng, written = episodes.window, np.random.default_rng(0), [[] for _ in range(4)]
    going = np.ones(4, dtype=bool)
    while going.any():
        for b in np.flatnonzero(going):
            written[b].append((window.node_rows[b, -1].copy(), window.job_rows[b, -1].copy()))
        for b in range(4):
            shown = written[b][-ROWS:]
            assert window.real[b].tolist() == [0.0] * (ROWS - len(shown)) + [1.0] * len(shown)
            for w, (nodes, job) in enumerate(reversed(shown)):
                np.testing.assert_array_equal(window.node_rows[b, -1 - w], nodes)
                np.testing.assert_array_equal(window.job_rows[b, -1 - w], job)
            assert not window.node_rows[b, : ROWS - len(shown)].any()
            assert not window.job_rows[b, : ROWS - len(shown)].any()
        going = rng.random(4) < 0.7  # not everybody decides at a time
        played = episodes.decide(random_moves(rng, episodes.world.masks()), going)
        if played.ended.any():
            break
        if not going.any():
            going[0] = True
            episodes.decide(np.zeros(4, dtype=int), going)
    assert max(len(mine) for mine in written) > 2 * ROWS


def test_a_late_cell_lands_in_the_row_of_its_arrival():
    """A line told in one decision and delivered in the next one stands in the row of the second."""
    episodes = episodes_in(calm("2x2"), 1, seed=0, observe="raw", decision=2, rows=ROWS, blackouts=False)
    network, window = episodes.world.network, episodes.window
    s = next(i for i, x in enumerate(network.spec.signal) if x.family == "count" and x.entity in ("gpu", "link"))
    signal, columns = network.spec.signal[s], episodes.names.node
    column, stream, at = columns.index(signal.name), STREAMS.index(signal.stream), network.slice_of(s).start
    step, running = episodes.world.step, np.ones(1, dtype=bool)

    def told_late(moves: np.ndarray, running: np.ndarray) -> None:
        step(moves, running)
        state, now = episodes.world.state, int(episodes.world.books.time[0]) - 1
        state.values[0, network.slice_of(s)] = 0.0
        state.arrival[0, stream] = now
        if now == 1:
            state.values[0, at] = 4.0
            state.arrival[0, stream, 0] = 3

    episodes.world.step = told_late  # type: ignore[method-assign]
    shown = []
    for _ in range(3):
        episodes.decide(np.zeros(1, dtype=int), running)
        shown.append(window.node_rows[0, -1, 0].copy())
    assert [row[column] for row in shown] == [0.0, 1.0, 0.0]
    arrived, age = (columns.index(f"{signal.stream}.{what}") for what in ("arrived", "age"))
    assert [row[arrived] for row in shown] == [1.0, 1.0, 1.0]
    assert shown[0][age] == pytest.approx(1 / OLDEST)  # slice 1 is not there yet
    assert shown[1][age] == 0.0


def test_an_episode_begins_with_an_empty_window():
    episodes = episodes_in(hot("2x2"), 2, seed=1, observe="both", rows=ROWS)
    first = [column.copy() for column in episodes.window]
    for _ in range(6):
        episodes.decide(np.zeros(2, dtype=int), np.ones(2, dtype=bool))
    kept = [column[1].copy() for column in episodes.window]
    episodes.begin(np.array([0]), np.array([0]))
    for name, now, before, other in zip(episodes.window._fields, episodes.window, first, kept, strict=True):
        np.testing.assert_array_equal(now[0], before[0], err_msg=name)
        np.testing.assert_array_equal(now[1], other, err_msg=name)
    assert episodes.outlook.variants[0, 0] == 1.0


@pytest.mark.parametrize("which", ["raw", "belief", "both"])
def test_padding_adds_nodes_of_zeros_and_changes_nothing_else(which):
    arguments = {"layout": "2x2", "hours": 0.25, "observe": which, "flat": False}
    narrow, wide = GPUClusterVector(2, **arguments), GPUClusterVector(2, pad_nodes=5, **arguments)
    one, other = narrow.reset(seed=1)[0], wide.reset(seed=1)[0]
    for _ in range(4):
        one, other = (env.step(np.array([0, 2]))[0] for env in (narrow, wide))
        assert other in wide.observation_space
        assert one.keys() == other.keys()
        for name, values in one.items():
            axis = {"nodes": 2, "belief_nodes": 1, "present": 1}.get(name)
            if axis is None:
                np.testing.assert_array_equal(values, other[name])
                continue
            assert other[name].shape[axis] == 5
            np.testing.assert_array_equal(values, other[name].take(range(2), axis=axis))
            assert not other[name].take(range(2, 5), axis=axis).any()
        assert other["present"].tolist() == [[1, 1, 0, 0, 0]] * 2


def test_columns_have_names_of_their_own():
    env = GPUCluster(layout="2x2", flat=False)
    names, spaces = env.episodes.names, env.observation_space
    assert spaces["nodes"].shape[2] == len(names.node) == len(set(names.node))
    assert spaces["job"].shape[1] == len(names.job) == len(set(names.job))
    assert not np.isnan(env.reset(seed=0)[0]["nodes"]).any()


def test_what_is_published_stands_in_every_row():
    episodes = episodes_in(hot("2x2", spares=2), 4, seed=8, observe="raw", decision=1, hours=0.5, rows=ROWS)
    rng, names = np.random.default_rng(3), episodes.names.job[-len(job_columns(3)) :]
    kinds = {"isolate": "isolate", "swap": "swap", "tree": "tree", "ring": "ring", "around": "around"}
    for _ in range(100):
        moves = random_moves(rng, episodes.world.masks(), 0.4)
        episodes.decide(moves, np.ones(4, dtype=bool))
        state, books, spec = episodes.world.state, episodes.world.books, episodes.world.network.spec
        for b in range(4):
            job = dict(zip(names, episodes.window.job_rows[b, -1, -len(names) :].tolist(), strict=True))
            action, target = episodes.world.moves.names[moves[b]]
            declared = next(a for a in spec.action if a.name == action)
            does = kinds.get(declared.does or "", "roll_back" if declared.discards else "restart")
            expected = {f"phase.{PHASES[state.phase[b]]}", f"class.{JOB_CLASSES[state.job_class[b]]}"}
            expected |= {f"moved.{does}"} if moves[b] else set()
            expected |= {f"copy_{k}.held" for k in range(state.held[b])}
            expected |= {("", "topology.tree", "topology.detour")[books.detour[b]]} - {""}
            ones = ("phase.", "class.", "moved.", "topology.")
            assert {n for n, x in job.items() if x and (n.startswith(ones) or n.endswith(".held"))} == expected
            assert job["working"] == (books.place[b] == 0).mean()
            assert job["lost"] == books.lost[b]
            assert job["age_of_halt"] == pytest.approx(min(state.age[b] / 40, 2))
            assert job["time"] == pytest.approx(books.time[b] / episodes.horizon)
            assert job["spares"] == (books.spares[b] + books.frail_spares[b]) / 4
            nodes = episodes.window.node_rows[b, -1, :, -len(NODE_COLUMNS) :]
            for n in range(2):
                moved = moves[b] > 0 and declared.target == "node" and target == n
                place = int(books.place[b, n])
                assert nodes[n].tolist() == [place == 1, place == 2, books.tickets[b, n], moved]


def test_flat_boxes_hold_the_same_numbers_in_one_axis():
    shaped, flat = (GPUCluster(layout="2x2", hours=0.25, pad_nodes=3, flat=which) for which in (False, True))
    one, other = shaped.reset(seed=0)[0], flat.reset(seed=0)[0]
    for _ in range(3):
        assert one.keys() == other.keys()
        for name, values in one.items():
            assert other[name].ndim == 1
            np.testing.assert_array_equal(values.ravel(), other[name])
        one, other = shaped.step(0)[0], flat.step(0)[0]
        assert one in shaped.observation_space
        assert other in flat.observation_space
    assert {values.ndim for values in one.values()} == {1, 2, 3}
