"""What a person reads of a diagnosis."""

import io

import pytest

from clusterorch.diagnosis.advice import Advice, Option
from clusterorch.diagnosis.commands import Command
from clusterorch.diagnosis.diagnose import Onset, Weight
from clusterorch.diagnosis.dossier import Dossier
from clusterorch.diagnosis.settling import Offer, Outcome
from clusterorch.diagnosis.suspects import Suspect
from clusterorch.reports.terminal import show_diagnosis
from clusterorch.reports.wording import Terminal, printable
from tests.reports.made import (
    Coverage,
    Finding,
    Ingested,
    Unrecognised,
    change,
    diagnosis,
    modes,
    reading,
)


def shown(made, *, width=80, encoding="utf-8", colour=None, top=5):
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="replace")
    console = Terminal(
        file=file,
        width=width,
        markup=False,
        highlight=False,
        force_terminal=colour is not None,
        color_system=colour,
    )
    show_diagnosis(made, console, top=top)
    file.flush()
    return raw.getvalue().decode(encoding)


def row(text, start):
    return next(line for line in text.splitlines() if line.lstrip().startswith(start))


def test_the_verdict_comes_first_with_its_mode_in_words():
    assert shown(diagnosis()).splitlines()[0] == ("Diagnosis: network link goes down, or flaps (ib_link_flap, 90.0 %)")


def test_every_mode_that_is_worth_a_row_has_a_bar_as_long_as_it_is_probable():
    made = diagnosis(modes(ib_link_flap=0.5, gpu_xid=0.25, healthy=0.125))
    text = shown(made)
    cells = {mode: row(text, mode).count("█") for mode in ("ib_link_flap", "gpu_xid", "healthy")}
    assert (cells["ib_link_flap"], cells["gpu_xid"], cells["healthy"]) == (10, 5, 2)
    order = [line.split()[0] for line in text.splitlines()[2:7]]
    assert order == sorted(made.modes, key=lambda mode: (-made.modes[mode], mode))[:5]


def test_modes_that_are_hardly_possible_share_a_row():
    made = diagnosis(modes(ib_link_flap=0.99))
    others = len(made.modes) - 5
    text = shown(made)
    if others:
        line = row(text, f"{others} others")
        ranked = sorted(made.modes, key=lambda mode: (-made.modes[mode], mode))
        assert f"{100 * sum(made.modes[mode] for mode in ranked[5:]):.1f} %" in line
        assert not any(text.splitlines()[n].startswith(ranked[5]) for n in range(2, 8))
    wide = diagnosis(modes())
    assert all(row(shown(wide), mode) for mode in wide.modes)  # none is rare: all are told


def test_what_would_settle_it_and_what_to_do_are_told():
    command = Command(
        name="look", title="look at the port", shell="ls", runs_on="one host", shows="now", signals=["s"], streams=["k"]
    )
    offer = Offer(
        command, 0.42, 0.0, [Suspect("n7", 0, 0.9, suspected=True, names={})],
        [Outcome("port state", "link 1", "yes", 0.75, "ib_link_flap", 0.97, "ib_link_flap", 0.97),
         Outcome("port state", "link 1", "no", 0.25, "ib_link_flap", 0.2, "gpu_xid", 0.7)],
    )  # fmt: skip
    first = Option("isolate_node", "the node leaves", "node n7", "a restart", 0.9, 0.05)
    second = Option("change_topology", "around it", "node n7", "a slower job", 0.8, 0.15)
    dossier = Dossier(diagnosis(), [offer], Advice(first, waits=False, options=[first, second], no_failure=0.05))
    text = shown(dossier)
    assert "settle   look at the port of n7 (look, 0.42 nats)" in text
    flat = " ".join(text.split())
    assert "75.0 % port state, link 1: yes; ib_link_flap then 97.0 %" in flat
    assert "25.0 % port state, link 1: no; gpu_xid leads, 70.0 %" in flat
    assert "advice isolate_node, node n7: clears it with 90.0 %; costs a restart" in flat
    assert "or change_topology, node n7: clears it with 80.0 %; costs a slower job" in flat
    assert max(map(len, text.splitlines())) <= 80


def test_if_nothing_would_move_it_that_is_said():
    offer = Offer(
        Command(name="look", title="look", shell="ls", runs_on="job", shows="now", signals=["s"], streams=["k"]),
        0.0,
        0.0,
        [],
        [],
    )
    waiting = Option("wait", "do nothing", "", "the time", 0.0, 0.1)
    text = shown(
        Dossier(diagnosis(modes(healthy=0.9)), [offer], Advice(waiting, waits=True, options=[], no_failure=0.9))
    )
    assert "settle   nothing that could be gathered is expected to move this" in text
    assert "advice   wait: do nothing" in text


def test_a_flat_posterior_is_called_undecided_and_looks_flat():
    text = shown(diagnosis(modes()))
    assert text.startswith("Diagnosis: undecided: ")
    assert len({row(text, mode).count("█") for mode in modes()}) == 1


def test_a_mode_that_is_nearly_certain_is_not_certain():
    text = shown(diagnosis(modes(ib_link_flap=0.99999)))
    assert ">99.9 %" in text
    assert "100" not in text


def test_logs_that_tell_nothing_leave_the_prior_and_say_so():
    made = diagnosis(
        modes(healthy=0.6), weights=[], onset=Onset(0.0, None),
        ingested=Ingested(coverage=Coverage(2, 0, 2, samples=[Unrecognised("a.log", 1, "hm")])),
    )  # fmt: skip
    text = shown(made)
    assert "the prior stands" in text.splitlines()[0]
    assert "no line is recognised: the posterior is the prior" in text
    assert "Not recognised: 2 of 2 lines" in text
    assert "a.log:1  hm" in text
    assert "and 1 more" in text


def test_a_file_without_lines_is_told():
    made = diagnosis(modes(), weights=[], ingested=Ingested(findings=[Finding("a.log", None, "empty", "is empty")]))
    text = shown(made)
    assert "There was no line to read." in text
    assert "a.log  is empty" in text


def test_the_place_the_time_and_the_chance_of_an_earlier_start_are_shown():
    later = reading(5, time=831416700.0)
    text = shown(diagnosis(onset=Onset(0.31, later)))
    assert "80.0 %  link n7 mlx5_3" in row(text, "where")
    assert "ib.log:5 (2026-05-06 21:05:00)" in row(text, "since")
    assert "31.0 %  that it had begun by the first telling line, ib.log:1" in text


def test_a_date_without_a_year_is_shown_without_one():
    text = shown(diagnosis(onset=Onset(0.9, reading(2, time=86400.0 * 31))))
    assert "ib.log:2 (Feb 01 00:00:00)" in text


def test_a_line_without_a_time_says_so():
    assert "ib.log:2 (no time)" in shown(diagnosis(onset=Onset(0.2, reading(2, time=None))))


def test_the_symptom_stands_against_the_root():
    text = shown(diagnosis())
    assert "link stays down beyond the transport limit (ib_link_flap.beyond" in row(text, "root")
    assert "transport gives up (70.0 %): what the logs shout, not the cause" in text


def test_lines_for_and_against_are_ranked_by_weight():
    weights = [
        Weight(reading(1), change(ib_link_flap=0.5), "ib_link_flap"),
        Weight(reading(2), change(ib_link_flap=-3.25), "gpu_xid"),
        Weight(reading(3), change(ib_link_flap=9.0), "ib_link_flap"),
        Weight(reading(4), change(ib_link_flap=0.0), "gpu_xid"),
    ]
    text = shown(diagnosis(weights=weights))
    lines = [line.split()[:2] for line in text.splitlines() if "ib.log:" in line and "." in line.split()[0]]
    assert [line for line in lines if line[0][0] in "+-"] == [
        ["+9.00", "ib.log:3"],
        ["+0.50", "ib.log:1"],
        ["-3.25", "ib.log:2"],
    ]
    assert "kernel: link down, link n7 mlx5_3" in text
    assert "n7 kernel: mlx5_core 0000:18:00.0 ibp24s0: Link down" in text


def test_no_more_lines_than_asked_for_are_shown():
    weights = [Weight(reading(n), change(ib_link_flap=1.0 + n), "ib_link_flap") for n in range(1, 8)]
    text = shown(diagnosis(weights=weights), top=2)
    assert [f"ib.log:{n} " in text.partition("Lines for")[2] for n in (7, 6, 5)] == [True, True, False]
    assert "and 5 more" in text


@pytest.mark.parametrize("width", [40, 80, 100, 200])
@pytest.mark.parametrize("colour", [None, "truecolor"])
def test_no_row_is_wider_than_the_screen(width, colour):
    long = reading(123456, text="x" * 400, file="a/very/long/name/of/a/file/" + "y" * 60 + ".log")
    text = shown(diagnosis(weights=[Weight(long, change(ib_link_flap=-700.0), "healthy")]), width=width, colour=None)
    assert max(map(len, text.splitlines())) <= width
    if colour:
        assert "\x1b[" in shown(diagnosis(), width=width, colour=colour)


HOSTILE = "a\x1b[2J\x1b]0;title\x07\r\x00 [bold red]not markup[/] \u202egnp.exe :skull: \ud800"


def test_text_of_a_log_cannot_drive_the_terminal():
    odd = reading(text=HOSTILE, file="x\x1b[31m.log")
    made = diagnosis(
        weights=[Weight(odd, change(ib_link_flap=2.0), "ib_link_flap")],
        ingested=Ingested(
            coverage=Coverage(lines=1, unrecognised=1, samples=[Unrecognised("y\x07.log", 3, HOSTILE)]),
            findings=[Finding("z\x1b.log", None, "binary", HOSTILE)],
        ),
        sites=[("node", f"node {HOSTILE}", 1.0)],
    )
    text = shown(made, width=200)
    assert not {c for c in text if c != "\n" and not c.isprintable()}
    assert "[bold red]not markup[/]" in text
    assert ":skull:" in text


def test_markup_and_control_characters_are_spelt_out():
    assert printable(HOSTILE) == (
        r"a\x1b[2J\x1b]0;title\x07\r\x00 [bold red]not markup[/] \u202egnp.exe :skull: \ud800"
    )


def test_a_terminal_without_unicode_gets_bars_of_ascii():
    text = shown(diagnosis(), encoding="ascii")
    assert row(text, "ib_link_flap").count("#") == 18
    assert text.isascii()
