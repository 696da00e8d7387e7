"""The command line: what each command prints, and how each kind of bad input ends."""

import io
import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from clusterorch import cli
from clusterorch.cli import commands
from clusterorch.cli.following import show_following
from clusterorch.diagnosis.diagnose import Onset, Weight, to_json
from clusterorch.diagnosis.dossier import Dossier
from clusterorch.errors import IngestError
from clusterorch.models import load
from clusterorch.models.reading import read_whole
from clusterorch.reports.wording import Terminal
from clusterorch.simulation.simulator import DEFAULT_ENTRY
from clusterorch.telemetry.reading import read_paths
from tests.reports.made import change, diagnosis, modes, reading

ROOT = Path(__file__).resolve().parents[1]
CASE = ROOT / "data/cases/case-023/logs"
MODES = {
    *(mode["name"] for mode in read_whole(ROOT / "models/reference.toml")["mode"]),
    "healthy",
}
LINE = "May  6 21:03:26 n7 kernel: mlx5_core 0000:18:00.0 ibp24s0: Link down\n"


def command(*words, **options):
    """Run as a user does, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "clusterorch", *map(str, words)],
        capture_output=True, text=True, check=False, cwd=options.pop("cwd", None),
        env=os.environ | {"PYTHONPATH": str(ROOT)}, **options,
    )  # fmt: skip


def failing(capsys, *words):
    """The one line on standard error of a command that cannot be done."""
    assert cli.main([str(word) for word in words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("clusterorch: error: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    return err


@pytest.fixture
def log(tmp_path):
    file = tmp_path / "kernel.log"
    file.write_text(LINE)
    return file


# ---------------------------------------------------------------- help


def test_help_names_every_command_and_imports_nothing_heavy():
    script = (
        "import sys; from clusterorch.cli import main; code = main(['--help']);"
        "print(sorted({m.partition('.')[0] for m in sys.modules}), file=sys.stderr); sys.exit(code)"
    )
    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert {"diagnose", "simulate", "model", "demo"} <= set(re.findall(r"\w+", outcome.stdout))
    loaded = set(re.findall(r"'([\w.]+)'", outcome.stderr))
    assert "clusterorch" in loaded
    assert not {"numba", "pgmpy", "matplotlib", "scipy", "networkx", "pandas", "numpy"} & loaded


@pytest.mark.parametrize("words", [[name] for name in cli.COMMANDS] + [["model", name] for name in cli.MODELS])
def test_every_command_has_help(capsys, words):
    assert cli.main([*words, "--help"]) == 0
    assert f"clusterorch {' '.join(words)}" in capsys.readouterr().out


def test_the_version_is_told(capsys):
    assert cli.main(["--version"]) == 0
    assert re.fullmatch(r"clusterorch \d+\.\d+\.\d+\n", capsys.readouterr().out)


# ---------------------------------------------------------------- diagnose


def test_diagnose_prints_a_view_for_people(capsys):
    assert cli.main(["diagnose", str(CASE)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith("Diagnosis: ")
    assert "ib_link_flap" in out
    assert all(f"\n{label} " in out for label in ("where", "since", "root", "settle", "advice"))
    assert "\x1b" not in out


def test_json_is_one_object_and_nothing_else_and_its_modes_sum_to_one(capsys):
    assert cli.main(["diagnose", str(CASE), "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    said = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert out.isascii()
    assert said["schema"] == "clusterorch.diagnosis/1"
    assert said["modes"].keys() == MODES
    assert sum(said["modes"].values()) == pytest.approx(1.0, abs=1e-9)
    assert all(p >= 0.0 for p in said["modes"].values())
    assert sum(site["probability"] for site in said["sites"]) <= 1.0 + 1e-9
    weights = [abs(line["weight_nats"]) for line in said["evidence"]]
    assert weights
    assert max(weights) < 100.0
    model = load("reference", layout="1x2", overlays=["incident"])
    assert said["model"] == {"name": "reference", "sha256": model.sha256}


def test_an_overlay_changes_the_model_that_is_used(capsys, log):
    said = []
    for extra in ([], ["--overlay", "site_llama3"]):
        assert cli.main(["diagnose", str(log), "--json", *extra]) == 0
        said.append(json.loads(capsys.readouterr().out))
    assert said[0]["model"]["sha256"] != said[1]["model"]["sha256"]
    assert said[0]["modes"] != said[1]["modes"]


def test_top_limits_the_lines_that_are_shown(capsys):
    lengths = []
    for top in ("1", "4"):
        assert cli.main(["diagnose", str(CASE), "--top", top]) == 0
        lengths.append(len(capsys.readouterr().out.splitlines()))
    assert lengths[0] < lengths[1]


def test_out_writes_the_same_object_that_json_prints(capsys, log, tmp_path):
    out = tmp_path / "deep" / "said.json"
    assert cli.main(["diagnose", str(log), "--json", "--out", str(out)]) == 0
    assert json.loads(out.read_text()) == json.loads(capsys.readouterr().out)
    assert [file.name for file in out.parent.iterdir()] == ["said.json"]


NOTHING_TO_RECOGNISE = {
    "blank": b"\n \n\n",
    "NUL": b"\x00" * 5000,
    "unknown": b"nobody knows this line\n" * 3,
}


@pytest.mark.parametrize("content", NOTHING_TO_RECOGNISE.values(), ids=NOTHING_TO_RECOGNISE)
def test_logs_that_tell_nothing_are_no_error_and_leave_the_prior(capsys, tmp_path, content):
    file = tmp_path / "some.log"
    file.write_bytes(content)
    assert cli.main(["diagnose", str(file), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    prior = load("reference", layout="1x2", overlays=["incident"]).spec.prior
    assert said["modes"]["healthy"] == pytest.approx(prior.healthy, abs=1e-9)
    assert sum(said["modes"].values()) == pytest.approx(1.0, abs=1e-9)
    assert said["evidence"] == []
    assert "nothing_recognised" in [finding["kind"] for finding in said["findings"]]
    assert cli.main(["diagnose", str(file)]) == 0
    assert "no line is recognised" in capsys.readouterr().out


def test_a_binary_file_in_a_folder_is_a_finding(capsys, log):
    (log.parent / "dump.bin").write_bytes(bytes(range(256)) * 40)
    assert cli.main(["diagnose", str(log.parent), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert ["dump.bin", "binary"] in [[finding["file"], finding["kind"]] for finding in said["findings"]]


def test_text_with_nul_bytes_and_broken_utf8_is_read(capsys, tmp_path):
    file = tmp_path / "some.log"
    file.write_bytes(b"a line\n" * 300 + LINE.encode() + b"nul \x00 byte, \xff\xfe and \xed\xa0\x80\n")
    assert cli.main(["diagnose", str(file), "--json"]) in (0, 2)
    out, err = capsys.readouterr()
    assert err.count("\n") <= 1
    if out:
        json.loads(out)


def test_a_number_that_json_does_not_know_is_written_as_text():
    said = to_json(diagnosis(weights=[Weight(reading(value=float("inf")), change(gpu_xid=1.0), "gpu_xid")]))
    assert json.loads(json.dumps(said, allow_nan=False))["evidence"][0]["value"] == "inf"


def test_what_is_no_json_is_never_printed(monkeypatch, capsys, log):
    monkeypatch.setattr("clusterorch.diagnosis.diagnose.to_json", lambda _: {"p": float("nan")})
    with pytest.raises(ValueError, match="JSON compliant"):
        cli.main(["diagnose", str(log), "--json"])
    assert capsys.readouterr().out == ""


def test_json_has_what_follows_from_the_diagnosis(capsys):
    assert cli.main(["diagnose", str(CASE), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    gains = [offer["gain_nats"] for offer in said["settle"]]
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] >= 0.0
    assert {"command", "shell", "hosts", "signals", "streams", "outcomes"} <= said["settle"][0].keys()
    assert said["advice"]["clears"] == max(option["clears"] for option in said["advice"]["options"])
    assert said["advice"]["cost"]
    assert {context["file"] for context in said["contexts"]} <= {line["file"] for line in said["evidence"]}
    assert any(context["before"] or context["after"] for context in said["contexts"])


def test_html_is_one_page_that_holds_the_verdict(capsys, log, tmp_path):
    out = tmp_path / "deep" / "page.html"
    assert cli.main(["diagnose", str(log), "--html", str(out)]) == 0
    assert capsys.readouterr().out.startswith("Diagnosis: ")
    text = out.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert "Link down" in text
    assert [file.name for file in out.parent.iterdir()] == ["page.html"]


@pytest.mark.parametrize(("text", "code"), [(LINE, 1), ("nobody knows\n", 3)], ids=["failure", "nothing"])
def test_an_exit_code_that_was_asked_for_tells_the_verdict(capsys, log, text, code):
    log.write_text(text)
    assert cli.main(["diagnose", str(log), "--exit-code", "--json"]) == code
    modes = json.loads(capsys.readouterr().out)["modes"]
    assert (max(modes.values()) >= 0.5 and max(modes, key=modes.get) != "healthy") == (code == 1)
    assert cli.main(["diagnose", str(log)]) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    ("beliefs", "told", "code"),
    [
        ({"healthy": 0.5}, True, 0), ({"healthy": 0.49}, True, 3), ({"gpu_xid": 0.5}, True, 1),
        ({"gpu_xid": 0.49}, True, 3), ({"gpu_xid": 0.9}, False, 3),
    ],
)  # fmt: skip
def test_the_verdict_and_its_exit_code(beliefs, told, code):
    weights = None if told else []
    assert Dossier(diagnosis(modes(**beliefs), weights=weights, onset=Onset(0.1, None))).exit_code == code


# ---------------------------------------------------------------- diagnose --follow


@pytest.fixture
def snapshots(monkeypatch):
    """Replaces the watching of files by states of them, one after the other, and then an interrupt."""

    def after(*texts, end=KeyboardInterrupt):
        def follow(paths, formats, **_):
            for text in texts:
                paths[0].write_text(text)
                yield read_paths(paths, formats)
            raise end

        monkeypatch.setattr("clusterorch.telemetry.following.follow", follow)

    return after


def test_following_prints_a_line_whenever_the_verdict_changes(capsys, log, snapshots):
    snapshots("nobody knows\n", "nobody knows\nat all\n", LINE, LINE + "more\n")
    assert cli.main(["diagnose", "--follow", str(log)]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert err == ""
    assert len(lines) == 2
    assert "the prior stands" in lines[0]
    assert re.match(r"\d\d:\d\d:\d\d .*ib_link_flap", lines[1])


def test_following_in_json_prints_an_object_a_line_and_ends_with_the_last_verdict(capsys, log, snapshots):
    snapshots("nobody knows\n", LINE)
    assert cli.main(["diagnose", "--follow", "--json", "--exit-code", str(log)]) == 1
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["coverage"]["recognised"] for one in said] == [0, 1]


def test_following_redraws_the_view_on_a_terminal(log, snapshots):
    file = io.StringIO()
    console = Terminal(file=file, force_terminal=True, width=80, height=50, markup=False, highlight=False)
    made = [Dossier(diagnosis(modes(gpu_xid=0.9))), Dossier(diagnosis(modes(ib_link_flap=0.9)))]

    def told():
        yield from made
        raise KeyboardInterrupt

    assert show_following(told(), console) == 1
    assert file.getvalue().count("Diagnosis: ") >= 2


def test_paths_that_vanish_while_followed_are_one_line(capsys, log, snapshots):
    snapshots(end=IngestError("kernel.log: is gone"))
    assert "is gone" in failing(capsys, "diagnose", "--follow", log)


@pytest.mark.parametrize("option", ["--html", "--out"])
def test_following_writes_no_file(capsys, log, tmp_path, option):
    assert option in failing(capsys, "diagnose", "--follow", log, option, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_following_ends_with_an_interrupt_from_the_keyboard(log):
    script = f"""
import os, signal, sys, threading, time

from clusterorch import cli

def press():
    while True:  # one that arrives inside a library's own handler may be lost
        time.sleep(3.0)
        os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=press, daemon=True).start()
sys.exit(cli.main(["diagnose", "--follow", {str(log)!r}]))
"""
    outcome = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT, timeout=120
    )
    assert outcome.returncode in (0, 130), outcome.stderr  # 130: before there was anything to follow
    assert outcome.stderr == ""


# ---------------------------------------------------------------- collect


def test_collect_prints_the_whole_set_of_commands(capsys):
    assert cli.main(["collect", "--print"]) == 0
    script = capsys.readouterr().out
    assert script.startswith("#!/bin/sh\n")
    assert "clusterorch diagnose" in script
    checked = subprocess.run(["sh", "-n"], input=script, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_collect_orders_by_what_a_diagnosis_lacks_and_a_written_one_gives_the_same(capsys, log, tmp_path):
    assert cli.main(["collect", "--print", str(log)]) == 0
    script = capsys.readouterr().out
    gains = [float(found) for found in re.findall(r", ([0-9.]+) nats expected", script)]
    assert gains
    assert gains == sorted(gains, reverse=True)
    assert "on n7 n7-" in script
    saved = tmp_path / "said.json"
    assert cli.main(["diagnose", str(log), "--out", str(saved)]) == 0
    capsys.readouterr()
    assert cli.main(["collect", "--print", "--from", str(saved)]) == 0
    again = capsys.readouterr().out
    assert [line for line in again.splitlines() if not line.startswith("# Model")] == [
        line for line in script.splitlines() if not line.startswith("# Model")
    ]


def test_a_host_with_a_line_break_in_a_written_diagnosis_is_refused(capsys, log, tmp_path):
    saved = tmp_path / "said.json"
    assert cli.main(["diagnose", str(log), "--out", str(saved)]) == 0
    capsys.readouterr()
    said = json.loads(saved.read_text())
    for offer in said["settle"]:
        for host in offer["hosts"]:
            host["host"] = "n7\nreboot"
    saved.write_text(json.dumps(said))
    assert "no name for a shell command" in failing(capsys, "collect", "--print", "--from", saved)


# ---------------------------------------------------------------- simulate


def simulated(folder, *words):
    """Run a small episode into a folder; its faults."""
    given = ["simulate", "--layout", "1x2", "--slices", "30", "--out", str(folder), *words]
    assert cli.main(given) == 0
    return json.loads((folder / "truth.json").read_text())["faults"]


def contents(folder):
    return {file.relative_to(folder): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def test_a_variant_that_is_named_is_the_one_that_happens(capsys, tmp_path):
    [fault] = simulated(tmp_path, "--fault", "ib_link_flap.beyond_limit", "--at", "5")
    assert (fault["variant"], fault["slice"]) == ("ib_link_flap.beyond_limit", 5)
    assert "ib_link_flap.beyond_limit" in capsys.readouterr().out


def test_a_mode_picks_one_of_its_variants_and_the_seed_decides_which(tmp_path):
    seen = set()
    for seed in range(8):
        [fault] = simulated(tmp_path / str(seed), "--fault", "ib_link_flap", "--seed", str(seed))
        seen.add(fault["variant"])
    assert len(seen) > 1
    assert {variant.partition(".")[0] for variant in seen} == {"ib_link_flap"}


def test_none_is_a_job_without_a_fault(tmp_path):
    assert simulated(tmp_path, "--fault", "none") == []


def test_an_intervention_is_carried_out(tmp_path):
    simulated(tmp_path, "--fault", "none", "--do", "link_down=1@10:12", "--do", "loss=nan@4")
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    done = [event for event in events if event["payload"].get("do")]
    assert [event["payload"]["name"] for event in done] == ["link_down"]
    assert [e["payload"]["value"] for e in events if e["kind"] == "loss" and 60.0 <= e["time"] < 75.0] == ["nan"]


def test_the_command_in_the_metadata_makes_the_same_bytes_again(tmp_path):
    one, other = tmp_path / "a b", tmp_path / "other"
    words = ["--fault", "nan_injection", "--seed", "3", "--logs", "--protocol", "covered", "--do", "loss=nan@4"]
    simulated(one, *words)
    program, *again = shlex.split(json.loads((one / "metadata.json").read_text())["command"])
    assert program == "clusterorch"
    assert str(one) not in again
    assert cli.main([*again, "--out", str(other)]) == 0
    assert contents(one) == contents(other)


@pytest.mark.parametrize("protocol", ["complete", "covered", "excerpt"])
def test_logs_of_every_protocol_can_be_diagnosed(capsys, tmp_path, protocol):
    words = ["--fault", "ib_link_flap.beyond_limit", "--seed", "5", "--at", "5", "--logs", "--protocol", protocol]
    simulated(tmp_path, *words)
    capsys.readouterr()
    assert cli.main(["diagnose", str(tmp_path / "logs"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert sum(said["modes"].values()) == pytest.approx(1.0, abs=1e-9)
    assert said["coverage"]["recognised"] > 0


def test_the_slice_in_which_a_fault_enters_is_the_simulators_own():
    from clusterorch.simulation.command import usual_entry

    model = load("reference", layout="1x2")
    assert commands.Simulate.at is None
    assert usual_entry(model, "gpu_xid.gsp_hang") == ("step", DEFAULT_ENTRY)
    assert usual_entry(model, "version_mismatch.driver/1") == ("launch", 0)
    assert usual_entry(model, None) == ("step", DEFAULT_ENTRY)


# ---------------------------------------------------------------- model


def test_model_check_counts_and_ends_with_ok(capsys):
    assert cli.main(["model", "check", str(ROOT / "models/reference.toml")]) == 0
    out = capsys.readouterr().out
    assert "configurations" in out
    assert re.search(r"^ok ", out, re.MULTILINE)


@pytest.mark.parametrize("words", [["show"], ["show", "reference", "--layout", "2x4"], ["sources"]])
def test_model_show_and_sources_print_tables(capsys, words):
    assert cli.main(["model", *words]) == 0
    out = capsys.readouterr().out
    assert "[bold]" not in out
    assert all(mode in out for mode in MODES - {"healthy"})


def test_model_picture_writes_a_picture(tmp_path):
    out = tmp_path / "model.svg"
    assert cli.main(["model", "picture", "reference", "--out", str(out)]) == 0
    assert out.read_text().startswith("<?xml")


def test_model_export_writes_a_graph_below_the_variant(tmp_path):
    out = tmp_path / "v.dot"
    words = ["model", "export", "reference", "--variant", "ib_link_flap.beyond_limit", "--format", "dot"]
    assert cli.main([*words, "--out", str(out)]) == 0
    text = out.read_text()
    assert text.startswith("digraph")
    assert '"ib_link_flap.beyond_limit" -> ' in text
    assert '"gpu_xid"' not in text


@pytest.mark.filterwarnings("ignore")  # those of pgmpy's own dependencies
def test_model_export_writes_a_network_that_others_read(tmp_path):
    out = tmp_path / "v.bif"
    words = ["model", "export", "reference", "--variant", "nan_injection.bad_batch", "--out", str(out)]
    assert cli.main(words) == 0
    assert out.read_text().startswith("network")
    assert len(list(tmp_path.iterdir())) == 1


# ---------------------------------------------------------------- bad input

USAGE = {
    "no command": [],
    "no such command": ["diagnos", "x"],
    "no such option": ["diagnose", "x", "--jsn"],
    "a word for a number": ["diagnose", "x", "--top", "many"],
    "an option without its value": ["diagnose", "x", "--model"],
    "no such subcommand": ["model", "chek"],
    "no subcommand": ["model"],
    "a word too much": ["model", "check", "a", "b"],
    "a missing option": ["demo"],
    "no such format": ["model", "export", "reference", "--variant", "v", "--out", "o", "--format", "pdf"],
    "a word for a seed": ["simulate", "--out", "o", "--seed", "x"],
}


@pytest.mark.parametrize("words", USAGE.values(), ids=USAGE)
def test_a_wrong_use_is_one_line_that_points_to_the_help(capsys, words):
    assert "--help" in failing(capsys, *words)


def test_no_path_is_one_line(capsys):
    assert "no path given" in failing(capsys, "diagnose")


BAD = {
    "unknown model": (["diagnose", "{log}", "--model", "referense"], "referense"),
    "missing model file": (["diagnose", "{log}", "--model", "{tmp}/none.toml"], "none.toml"),
    "unknown overlay": (["diagnose", "{log}", "--overlay", "sight"], "sight"),
    "malformed TOML": (["model", "check", "{tmp}/bad.toml"], "bad.toml: syntax"),
    "malformed TOML for logs": (["diagnose", "{log}", "--model", "{tmp}/bad.toml"], "bad.toml: syntax"),
    "a model that is no text": (["model", "check", "{tmp}/binary.toml"], "not UTF-8"),
    "an empty model": (["model", "check", "{tmp}/empty.toml"], "empty.toml"),
    "missing path": (["diagnose", "{tmp}/none.log"], "none.log"),
    "a line break in a path": (["diagnose", "{tmp}/no\nne\x1b[31m.log"], "ne"),
    "a line break in a name": (["model", "show", "no\nne\x1b[31m.toml"], "no ne [31m.toml: no such"),
    "nothing shown": (["diagnose", "{log}", "--top", "0"], "--top 0"),
    "empty file": (["diagnose", "{tmp}/empty.toml"], "empty.toml"),
    "empty folder": (["diagnose", "{tmp}/hollow"], "hollow"),
    "binary file": (["diagnose", "{tmp}/dump.bin"], "dump.bin"),
    "neither file nor folder": (["diagnose", "/dev/null"], "neither"),
    "existing output": (["diagnose", "{log}", "--out", "{log}"], "--force"),
    "a folder as output": (["diagnose", "{log}", "--out", "{tmp}", "--force"], "folder"),
    "output below a file": (["diagnose", "{log}", "--out", "{log}/x.json"], "kernel.log"),
    "existing picture": (["model", "picture", "reference", "--out", "{tmp}/old.png"], "--force"),
    "unknown kind of picture": (["model", "picture", "reference", "--out", "{tmp}/a.gif"], ".svg"),
    "unknown variant": (
        ["model", "export", "reference", "--variant", "ib_link", "--out", "{tmp}/a"],
        "near it",
    ),
    "existing trace": (["simulate", "--layout", "1x2", "--slices", "3", "--out", "{tmp}/trace"], "truth.json"),
    "unknown fault": (["simulate", "--fault", "gpu_xi", "--out", "{tmp}/new"], "near it: gpu_xid."),
    "unknown variant of a mode": (["simulate", "--fault", "gpu_xid.x", "--out", "{tmp}/new"], "near it: gpu_xid."),
    "no such site": (["simulate", "--fault", "gpu_xid/99", "--out", "{tmp}/new"], "99"),
    "bad do": (["simulate", "--do", "nonsense", "--out", "{tmp}/new"], "NAME=VALUE"),
    "do on an unknown variable": (["simulate", "--do", "link_don=1", "--out", "{tmp}/new"], "link_down"),
    "do on an unknown entity": (["simulate", "--do", "xid[99]=lost", "--out", "{tmp}/new"], "xid[99]"),
    "a fault after the end": (["simulate", "--fault", "gpu_xid", "--at", "999", "--out", "{tmp}/new"], "--at 999"),
    "no slices": (["simulate", "--slices", "0", "--out", "{tmp}/new"], "0 slices"),
    "a page that is there": (["diagnose", "{log}", "--html", "{log}"], "--force"),
    "a folder as page": (["diagnose", "{log}", "--html", "{tmp}", "--force"], "folder"),
    "a page below a file": (["diagnose", "{log}", "--html", "{log}/x.html"], "x.html: cannot be written"),
    "a page that cannot be": (["diagnose", "{log}", "--html", "/proc/no/x.html"], "/proc/no/x.html: cannot be written"),
    "one file for both": (["diagnose", "{log}", "--html", "{tmp}/a", "--out", "{tmp}/a"], "cannot be one file"),
    "nothing to follow": (["diagnose", "--follow", "{tmp}/none.log"], "none.log"),
    "a script without asking": (["collect"], "--print"),
    "a script of nothing": (["collect", "--print", "{tmp}/none.log"], "none.log"),
    "two orders": (["collect", "--print", "{log}", "--from", "{log}"], "--from"),
    "no diagnosis": (["collect", "--print", "--from", "{log}"], "no JSON"),
    "no such diagnosis": (["collect", "--print", "--from", "{tmp}/none.json"], "none.json"),
    "another object": (["collect", "--print", "--from", "{tmp}/other.json"], "clusterorch.diagnosis/1"),
    "an unknown command": (["collect", "--print", "--from", "{tmp}/strange.json"], "no command 'reboot'"),
    "impossible layout for a job": (["simulate", "--layout", "9999999x9", "--out", "{tmp}/new"], "9999999x9"),
    "impossible layout": (["model", "show", "--layout", "0x8"], "0x8"),
    "malformed layout": (["model", "show", "--layout", "4by8"], "4by8"),
}


@pytest.mark.parametrize(("words", "named"), BAD.values(), ids=BAD)
def test_bad_input_is_one_line_that_names_it(capsys, tmp_path, log, words, named):
    (tmp_path / "hollow").mkdir()
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace/truth.json").write_text("old")
    (tmp_path / "bad.toml").write_text("[model\nname = ")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty.toml").write_text("")
    (tmp_path / "dump.bin").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "old.png").write_bytes(b"old")
    (tmp_path / "other.json").write_text("[]")
    (tmp_path / "strange.json").write_text(
        json.dumps(
            {"schema": "clusterorch.diagnosis/1", "settle": [{"command": "reboot", "gain_nats": 1, "hosts": []}]}
        )
    )
    assert named in failing(capsys, *(word.format(log=log, tmp=tmp_path) for word in words))
    assert log.read_text() == LINE
    assert (tmp_path / "old.png").read_bytes() == b"old"
    assert (tmp_path / "trace/truth.json").read_text() == "old"
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_one_line(capsys, log):
    log.chmod(stat.S_IWUSR)
    assert "kernel.log" in failing(capsys, "diagnose", log)


def test_force_replaces_what_is_there(log, tmp_path):
    out = tmp_path / "said.json"
    out.write_text("old")
    assert cli.main(["diagnose", str(log), "--out", str(out), "--force"]) == 0
    assert json.loads(out.read_text())["modes"]


# ---------------------------------------------------------------- processes


def test_a_command_that_fails_prints_no_traceback():
    outcome = command("diagnose", "/none/such")
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert outcome.stderr == "clusterorch: error: /none/such: cannot be opened: No such file or directory\n"


def test_a_reader_that_goes_away_is_no_error():
    script = f"{sys.executable} -m clusterorch model sources; echo $? >&2"
    outcome = subprocess.run(
        ["bash", "-c", f"({script}) | true"], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert outcome.stderr in ("141\n", "0\n")  # 0: all of it fitted into the pipe


@pytest.mark.parametrize("given", [BrokenPipeError(), KeyboardInterrupt(), MemoryError(), OSError(28, "No space left")])
def test_an_interruption_ends_quietly(monkeypatch, capsys, given):
    def interrupted(self):
        raise given

    monkeypatch.setattr(cli.MODELS["show"], "run", interrupted)
    monkeypatch.setattr(cli.os, "dup2", lambda *_: None)
    code = {BrokenPipeError: 141, KeyboardInterrupt: 130}.get(type(given), 2)
    assert cli.main(["model", "show"]) == code
    assert capsys.readouterr().err.count("\n") == (1 if code == 2 else 0)


def test_an_interrupt_from_the_keyboard_ends_with_130():
    script = (
        "import os, signal; from clusterorch import cli;"
        "cli.MODELS['show'].run = lambda self: os.kill(os.getpid(), signal.SIGINT);"
        "raise SystemExit(cli.main(['model', 'show']))"
    )
    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (outcome.returncode, outcome.stderr) == (128 + signal.SIGINT, "")
