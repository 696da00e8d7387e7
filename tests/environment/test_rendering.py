"""Views hold what was published, delivered and believed, nothing hidden, and fit where they are shown."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from clusterorch.environment import rendering
from clusterorch.environment.books import IN_REPAIR
from clusterorch.environment.chronicle import Chronicle
from clusterorch.environment.cluster import GPUCluster
from clusterorch.environment.making import episodes_of
from clusterorch.environment.notices import Notices, place_of
from clusterorch.environment.racks import SIZE, Window, opens_windows
from clusterorch.environment.rendering import Renderer
from clusterorch.environment.timeline import WIDTH, printed
from clusterorch.errors import ClusterorchError, InvalidIntervention
from clusterorch.models.spec import STREAMS
from tests.environment.worlds import hot, random_moves

SMALL = {"layout": "2x2", "hours": 1.0, "seed": 3}  # a failure enters in slice 168


def watched(moves=None, decisions=None, **arguments):
    """A renderer of a small episode that has been played for some decisions under moves that are set."""
    episodes = episodes_of(1, **(SMALL | arguments))
    renderer = Renderer(episodes, 0)
    episodes.begin(np.array([0]), np.array([0]))
    go_on(episodes, moves or {}, 10**6 if decisions is None else decisions)
    return episodes, renderer


def go_on(episodes, moves, decisions):
    for decision in range(decisions):
        if episodes.world.books.time[0] >= episodes.horizon:
            break
        move = episodes.world.moves.parse(moves.get(decision, "wait"))
        episodes.decide(np.array([move]), np.array([True]))


def corrupt(episodes):
    """Another truth with the same past: what no telemetry has shown and nobody has published."""
    state, books = episodes.world.state, episodes.world.books
    state.variant[0], state.site[0], state.severity[0], state.poisoned[0] = 3, 1, 2, 1
    state.bits[0], state.stage[0], state.proneness[0], state.share[0] = 5, 1, 9.0, 9.0
    state.values[0], state.silent[0] = 1.0, 1
    state.progress[0], state.copy_progress[0] = 1e6, 1e6
    books.good[0], books.copy_good[0], books.heads[0], books.discarded[0] = 1e6, 1e6, 0.5, 1e6
    books.incident[0], books.repair_stage[0], books.false_moves[0] = 3, 1, 1
    books.spares[0], books.frail_spares[0] = books.frail_spares[0], books.spares[0]


@pytest.mark.parametrize("observe", ["raw", "both"])
def test_a_fault_that_has_shown_nothing_changes_nothing_in_the_views(observe):
    episodes, renderer = watched({3: "isolate_node:1"}, 20, observe=observe, layout="3x2")
    text, frame = renderer.render("ansi"), renderer.render("rgb_array")
    corrupt(episodes)
    assert renderer.render("ansi") == text
    assert np.array_equal(renderer.render("rgb_array"), frame)
    assert "truth" not in text


def test_with_privilege_the_views_tell_the_truth():
    episodes, renderer = watched({}, 45, privileged=True)
    text, frame = renderer.render("ansi"), renderer.render("rgb_array")
    block = episodes.world.network.blocks[episodes.world.state.variant[0]]
    assert f"truth      {block.variant.name}" in text
    assert "in truth" in text
    corrupt(episodes)
    assert renderer.render("ansi") != text
    assert not np.array_equal(renderer.render("rgb_array"), frame)


@pytest.mark.parametrize("layout", ["1x1", "2x2", "64x8"])
def test_no_line_is_wider_than_a_terminal(layout):
    rng = np.random.default_rng(0)
    env = GPUCluster(layout=layout, hours=0.5, observe="raw", render_mode="ansi")
    env.reset(seed=1)
    for _ in range(30):
        lines = env.render().splitlines()
        assert max(map(len, lines)) <= WIDTH
        assert not any(line != line.rstrip() for line in lines)
        if env.step(random_moves(rng, env.action_masks()[None], 0.5)[0])[3]:
            break
    env.close()


def test_the_timeline_holds_the_clock_the_job_the_copies_the_nodes_and_the_moves():
    episodes, renderer = watched({5: "isolate_node:1", 6: "isolate_node:1"}, 12, layout="3x2", observe="raw")
    text, books = renderer.render("ansi"), episodes.world.books
    assert text.startswith(f"{clock_at(episodes)} of 1:00:00  a job on 3x2\n")
    assert "2 of 3 in the job; in repair 1; 1 spare" in text
    assert books.place[0, 1] == IN_REPAIR
    age = int(books.time[0] - books.copy_time[0, 0])
    assert f"0: 0:{age * 15 // 60:02d}:{age * 15 % 60:02d} old" in text
    assert "topology   ring" in text
    assert "0:05:00  isolate_node:1\n" in text
    assert "isolate_node:1, not legal: nothing was done" in text
    assert "▲" in text
    assert "─" * 5 + "↑" in text
    assert "belief" not in text


def clock_at(episodes):
    seconds = int(episodes.world.books.time[0]) * 15
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def test_the_belief_is_told_with_its_mode_and_its_place():
    episodes, renderer = watched({}, 60)
    text = renderer.render("ansi")
    modes = dict(renderer.chronicle.modes())
    assert abs(sum(modes.values()) - 1.0) < 1e-4
    mode = max(modes, key=modes.get)
    title = {m.name: m.title for m in episodes.world.network.spec.mode} | {"healthy": "no failure"}
    assert title[mode][:30] in text
    assert re.search(r"^belief .*no failure$", text, re.MULTILINE)
    assert "at " in text


def test_the_ribbon_tells_every_slice_as_it_was_published():
    episodes, renderer = watched({}, 0, observe="raw")
    heard = []

    class Ear:
        def listen(self, episodes, running):
            heard.append((int(episodes.world.state.phase[0]), int(episodes.world.state.job_class[0])))

    episodes.listeners.append(Ear())
    go_on(episodes, {10: "restart_rank:0"}, 60)
    spent = renderer.chronicle.spent
    assert len(spent) == len(heard) == episodes.world.books.time[0]
    assert len({(kind, phase) for kind, phase in zip(spent, heard, strict=True)}) == len(set(heard))


@pytest.mark.parametrize("seed", range(6))
def test_what_is_kept_as_published_is_the_truth_but_for_slowness_and_poison(seed):
    """Random moves in a hot world: restarts, isolations and crashes bill what the books bill."""
    episodes = episodes_on(hot("3x2"), seed)
    chronicle, rng, made, true = Chronicle(episodes, 0), np.random.default_rng(seed), [], []
    episodes.begin(np.array([0]), np.array([0]))
    while episodes.world.books.time[0] < episodes.horizon:
        episodes.decide(random_moves(rng, episodes.world.masks(), 0.1), np.array([True]))
        made.append(chronicle.kept)
        true.append(float(episodes.world.books.good[0]))
    totals = episodes.totals.heads[0]
    hidden = totals[1] + totals[5]  # slow and poisoned
    assert min(np.array(made) - np.array(true)) > -1e-6
    assert max(np.array(made) - np.array(true)) <= hidden + 1e-6
    if hidden == 0.0:
        assert np.allclose(made, true)


def test_a_detour_that_is_published_counts_in_what_is_kept():
    """Of this seed the first episode holds no incident."""
    episodes, renderer = watched({5: "use_tree", 20: "isolate_node:0"}, seed=1, layout="3x2", observe="raw")
    assert episodes.totals.incidents == [[]]
    assert episodes.totals.heads[0, 1] > 1.0  # slow, for the tree alone
    assert renderer.chronicle.kept == pytest.approx(float(episodes.world.books.good[0]))


def episodes_on(model, seed):
    from clusterorch.environment.episodes import Episodes, Settings

    return Episodes(model, 1, Settings(observe="raw", hours=1.0), seed=seed)


def test_a_renderer_that_comes_late_takes_what_the_window_holds():
    episodes, early = watched({}, 20, observe="raw")
    late = Renderer(episodes, 0)
    rows = int(episodes.window.real[0].sum())
    assert late.chronicle.spent[-4 * (rows - 2) :] == early.chronicle.spent[-4 * (rows - 2) :]
    assert len(late.chronicle.spent) == 80
    assert "since 0:20:00" in late.render("ansi")
    go_on(episodes, {}, 5)
    assert late.chronicle.kept == early.chronicle.kept - 80


def test_another_episode_begins_another_timeline():
    episodes, renderer = watched({2: "restart_rank:0"}, 10)
    fresh = Renderer(episodes_of(1, **SMALL), 0)
    fresh.chronicle.episodes.begin(np.array([0]), np.array([1]))
    episodes.begin(np.array([0]), np.array([1]))
    assert renderer.render("ansi") == fresh.render("ansi")
    assert np.array_equal(renderer.render("rgb_array"), fresh.render("rgb_array"))


def test_looking_changes_nothing_and_without_it_nobody_listens():
    arguments = {"layout": "2x2", "hours": 1.0}
    plain, shown = GPUCluster(**arguments), GPUCluster(**arguments, render_mode="rgb_array")
    assert not plain.episodes.listeners
    for env in (plain, shown):
        env.reset(seed=5)
    for _ in range(12):
        shown.render()
        one, other = plain.step(0), shown.step(0)
        assert all(np.array_equal(one[0][name], other[0][name]) for name in one[0])
        assert one[1] == other[1]
    assert shown.episodes.listeners
    shown.close()
    assert not shown.episodes.listeners
    assert not shown.episodes.recorders


def test_pictures_have_one_size_and_show_what_changes():
    episodes, renderer = watched({}, 1, layout="3x2")
    first = renderer.frame()
    assert first.shape == (*SIZE, 3)
    assert first.dtype == np.uint8
    assert len(np.unique(first.reshape(-1, 3), axis=0)) > 50
    assert (first[0, 0] == 255).all()
    go_on(episodes, {0: "isolate_node:2"}, 5)
    second = renderer.frame()
    assert second.shape == first.shape
    assert not np.array_equal(first, second)
    assert np.array_equal(second, renderer.frame())


def test_samples_are_those_delivered_and_grey_is_where_none_came():
    """Cells are late and lost in this world."""
    episodes = episodes_on(hot("2x2"), 0)
    chronicle = Chronicle(episodes, 0)
    episodes.begin(np.array([0]), np.array([0]))
    network, window, late = episodes.world.network, episodes.window, 0
    assert chronicle.samples
    for _ in range(30):
        episodes.decide(np.array([0]), np.array([True]))
        for s, sampled in chronicle.samples.items():
            stream = STREAMS.index(network.spec.signal[s].stream)
            for gpu, taken in enumerate(map(int, sampled.slices)):
                node = gpu // network.layout.gpus
                assert taken == int(window.newest[0, stream, node])
                late += taken < chronicle.time - 1
                if taken > chronicle.time - window.values.shape[1]:
                    value = window.values[0, taken % window.values.shape[1], network.slice_of(s)][gpu]
                    assert sampled.values[gpu] == value or (np.isnan(sampled.values[gpu]) and not np.isfinite(value))
    assert late > 0


def test_a_picture_is_written_as_a_file(tmp_path):
    _, renderer = watched({}, 3)
    renderer.save(tmp_path / "racks.png")
    assert (tmp_path / "racks.png").read_bytes().startswith(b"\x89PNG")
    again = tmp_path / "again.png"
    renderer.save(again)
    assert again.read_bytes() == (tmp_path / "racks.png").read_bytes()


def test_everyday_lines_are_not_told_and_rare_ones_are():
    episodes, _ = watched({}, 5, observe="raw")
    network, notices = episodes.world.network, Notices(episodes)
    names = episodes.names
    nodes = np.zeros((2, len(names.node)), dtype=np.float32)
    job = np.zeros(len(names.job), dtype=np.float32)
    told = {s.name: s.title for s in network.spec.signal}
    nodes[1, names.node.index("xid.lost")] = 1.0
    nodes[:, names.node.index("utilization.full")] = 1.0
    job[names.job.index("progress")] = 1.0
    for now in (4, 8):
        notices.take_in(nodes, job, now)
    found = notices.newest(10)
    assert [(n.first, n.last, n.text, n.nodes, n.times) for n in found] == [(4, 8, f"{told['xid']}: lost", {1}, 2)]
    notices.take_in(nodes, job, 400)
    assert [n.first for n in notices.newest(10)] == [4, 400]
    assert [n.first for n in notices.newest(1)] == [400]
    assert notices.newest(0) == []
    layout = network.layout
    assert [place_of(n, layout) for n in (set(), {1}, {0, 1})] == ["job", "node 1", "all nodes"]


def test_a_node_that_differs_is_told_when_it_does_so_again_and_again():
    episodes = episodes_of(1, layout="4x2", hours=1.0, observe="raw")
    notices, names = Notices(episodes), episodes.names
    nodes = np.zeros((4, len(names.node)), dtype=np.float32)
    job = np.zeros(len(names.job), dtype=np.float32)
    nodes[2, names.node.index("temperature.max")] = 5.0
    for now in (4, 8, 12):
        notices.take_in(nodes, job, now)
    assert notices.newest(5) == []
    notices.take_in(nodes, job, 16)
    (found,) = notices.newest(5)
    assert found.nodes == {2}
    assert found.text == "102 (others 62): GPU core temperature"


@pytest.mark.parametrize("mode", ["ansi", "rgb_array"])
def test_gymnasium_finds_nothing_to_say_about_it(mode):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make("clusterorch/GPUCluster-v0", layout="1x2", hours=0.2, render_mode=mode)
        check_env(env.unwrapped, skip_render_check=False)
        env.close()


def test_a_mode_there_is_not_is_refused():
    _, renderer = watched({}, 0, observe="raw")
    with pytest.raises(InvalidIntervention, match="ansi, rgb_array, human"):
        renderer.render("svg")


class Screen(io.StringIO):
    """A terminal."""

    encoding = "utf-8"

    def isatty(self):
        return True


def test_for_a_person_the_text_stays_in_its_place_on_a_terminal(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "platform", "linux")
    episodes, renderer = watched({}, 2)
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    assert renderer.render("human") is None
    first = screen.getvalue()
    go_on(episodes, {}, 1)
    renderer.render("human")
    second = screen.getvalue()[len(first) :]
    assert second.startswith(f"\x1b[{first.count(chr(10))}A\r")
    assert "0:03:00 of" in second


def test_for_a_person_without_a_terminal_or_a_display_the_text_is_printed(monkeypatch, capsys):
    monkeypatch.setattr(rendering, "has_display", lambda: False)
    _, renderer = watched({}, 2)
    assert renderer.render("human") is None
    assert capsys.readouterr().out == printed(renderer.text()) + "\n\n"


def test_a_window_shows_the_frames_where_there_is_a_display(monkeypatch):
    monkeypatch.setattr(rendering, "has_display", lambda: True)
    monkeypatch.setenv("MPLBACKEND", "agg")
    episodes, renderer = watched({}, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the backend of tests opens no window
        assert renderer.render("human") is None
        go_on(episodes, {}, 2)
        renderer.render("human")
    assert isinstance(renderer._window, Window)
    assert np.array_equal(renderer._window._image.get_array(), renderer.frame())
    assert not opens_windows()
    renderer.close()
    assert renderer._window is None


def test_the_environment_renders_for_a_person_by_itself(monkeypatch, capsys):
    monkeypatch.setattr(rendering, "has_display", lambda: False)
    env = GPUCluster(layout="1x2", hours=0.1, observe="raw", render_mode="human")
    env.reset(seed=0)
    env.step(0)
    assert capsys.readouterr().out.count(" of 0:06:00  a job on 1x2") == 2


def test_a_low_terminal_sees_less_of_the_past_and_all_of_the_present():
    _, renderer = watched({2: "restart_rank:0", 9: "use_tree"}, hours=3.0)
    tall, low = renderer.text().plain.splitlines(), renderer.text(23).plain.splitlines()
    assert len(low) <= 23 < len(tall)
    assert low[:6] == tall[:6]
    assert [line for line in low if line.startswith("belief")] == [line for line in tall if line.startswith("belief")]


def test_letters_of_ascii_do_where_there_are_no_others():
    _, renderer = watched({2: "restart_rank:0"}, 50)
    text = printed(renderer.text(), plain=True)
    assert text.isascii()
    assert len(text.splitlines()) == len(renderer.render("ansi").splitlines())


def test_without_matplotlib_text_is_there_and_a_picture_is_refused(monkeypatch):
    from importlib import util

    _, renderer = watched({}, 1)
    found = util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "matplotlib" else found(name))
    assert renderer.render("ansi")
    with pytest.raises(ClusterorchError, match="pip install"):
        renderer.render("rgb_array")


def test_text_needs_no_library_of_pictures():
    script = (
        "import sys, clusterorch.environment.cluster as c\n"
        "env = c.GPUCluster(layout='1x1', hours=0.1, observe='raw', render_mode='ansi')\n"
        "env.reset(seed=0); env.render(); print('matplotlib' in sys.modules)"
    )
    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert outcome.stdout.strip() == "False"
