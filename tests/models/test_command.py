import pytest
from rich.console import Console

from clusterorch.errors import UnknownModel
from clusterorch.models.command import check_command, show_command, sources_command
from tests.models import tiny


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(tiny.TEXT, encoding="utf-8")
    return path


@pytest.fixture
def console():
    return Console(width=100, record=True, quiet=False, file=None, force_terminal=False, color_system=None)


def said(console):
    return console.export_text()


def line(text, start):
    return next(found.split() for found in text.splitlines() if found.strip().startswith(start))


def test_check_counts_what_a_variant_costs(file, console):
    assert check_command([file], console=console)
    text = said(console)
    assert line(text, "fault.plain") == ["fault.plain", "link", "1", "4", "7"]
    assert line(text, "fault.graded")[:3] == ["fault.graded", "gpu", "3"]
    assert line(text, "healthy.noise") == ["healthy.noise", "job", "1", "1", "1"]
    assert f"ok {file}" in text
    assert "warning" not in text


def test_check_goes_on_after_a_broken_file(file, tmp_path, console):
    broken = tmp_path / "broken.toml"
    broken.write_text(tiny.TEXT.replace('timer = "limit"', 'timer = "limes"'), encoding="utf-8")
    assert not check_command([broken, tmp_path / "none.toml", file], console=console)
    text = said(console)
    assert f"error {broken}: edge(stuck>gave_up).delay.timer: no timer is named 'limes'" in text
    assert "none.toml: no such model file" in text
    assert f"ok {file}" in text


def test_check_prints_warnings(file, console):
    file.write_text(tiny.TEXT.replace("[sources]", '[sources]\nspare = "unread"'), encoding="utf-8")
    assert check_command([file], console=console)
    assert "warning sources.spare: no number cites it" in said(console)


def test_check_is_thorough(file, console):
    text = tiny.TEXT + '[[mechanism]]\nname = "idle"\ntitle = "never"\n'
    file.write_text(text, encoding="utf-8")
    assert not check_command([file], console=console)
    assert "mechanism(idle): no variant brings it about" in said(console)


def test_check_holds_overlays_to_their_own_account(file, tmp_path, console):
    overlay = tmp_path / "lossy.toml"
    overlay.write_text('[[stream]]\nname = "smi"\nlost = 0.5\n')
    assert not check_command([file], [overlay], console=console)
    assert f"error {overlay}: stream(smi).lost: the number 0.5 has no origin" in said(console)


def test_show_names_everything_that_is_declared(file, console):
    model = show_command(file, layout="2x4", console=console)
    text = said(console)
    spec = model.spec
    declared = [*spec.mode, *spec.mode[0].variant, *spec.mechanism, *spec.signal, *spec.action]
    for thing in declared:
        assert thing.name in text
    assert "layout 2x4" in text
    assert "timer limit, 45 s" in text
    assert line(text, "graded")[-4:] == ["0.5", "50%", "1,000", "d"]
    assert max(map(len, text.splitlines())) <= 100


def test_show_tells_how_often_a_mode_strikes(file, console):
    show_command(file, layout="2x4", console=console)
    assert line(said(console), "fault ")[-3:] == ["1", "500", "d"]  # 1000 node-days on two nodes


def test_sources_lists_every_number_with_its_origin(file, console):
    sources_command(file, console=console)
    text = said(console)
    assert line(text, "copies") == ["copies", "3", "sourced", "paper", "table", "2"]
    assert line(text, "limit.seconds")[:3] == ["limit.seconds", "45", "s"]
    assert "(paper" not in text
    assert "quantities: " in text.splitlines()[-1]
    assert " %), " in text.splitlines()[-1]


def test_an_unknown_model_is_left_to_the_caller(console):
    for command in (show_command, sources_command):
        with pytest.raises(UnknownModel):
            command("nothing", console=console)
