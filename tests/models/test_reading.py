import pytest

from clusterorch.errors import InvalidModel, UnknownModel
from clusterorch.models import Model, available, load
from clusterorch.models.reading import fingerprint, locate, locate_overlay, read, read_toml
from tests.models import tiny


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(tiny.TEXT, encoding="utf-8")
    return path


def broken(file, old, new):
    assert tiny.TEXT.count(old) >= 1
    file.write_text(tiny.TEXT.replace(old, new, 1), encoding="utf-8")
    return file


def test_a_file_is_loaded_by_path(file):
    model = load(file, layout="2x4")
    assert isinstance(model, Model)
    assert (model.name, model.path, str(model.layout)) == ("tiny", file, "2x4")
    assert model.variants == ["fault.graded", "fault.plain", "healthy.noise"]
    assert list(model.modes) == ["fault"]
    assert "stuck" in model.mechanisms
    assert "heat" in model.signals


def test_the_packaged_model_is_loaded_by_name():
    assert "reference" in available()
    assert load("reference").name == "reference"


def test_a_number_may_carry_its_origin(file):
    spec, raw = read(file, [])
    assert spec.job.copies == 3
    assert raw["job"]["copies"] == {"value": 3, "source": "paper table 2"}


@pytest.mark.parametrize("name", ["nothing", "nothing.toml", "no/such/file.toml"])
def test_an_unknown_model_is_refused(name):
    with pytest.raises(UnknownModel, match=r"nothing|no such"):
        locate(name)


def test_an_unknown_model_is_answered_with_the_known_ones():
    with pytest.raises(UnknownModel, match="reference"):
        load("referense")


def test_an_unknown_overlay_is_answered_with_the_known_ones():
    with pytest.raises(UnknownModel, match="episode, incident"):
        locate_overlay("weather")


def test_a_folder_is_no_model(tmp_path):
    with pytest.raises(InvalidModel, match="cannot be read"):
        read_toml(tmp_path)
    with pytest.raises(UnknownModel):
        locate(tmp_path)


def test_malformed_toml_is_refused_with_its_line(file):
    broken(file, "[job]", "[job")
    with pytest.raises(InvalidModel, match="line 13") as caught:
        load(file)
    assert caught.value.key == "syntax"
    assert "\n" not in str(caught.value)


def test_what_is_not_text_is_refused_with_its_place(file):
    file.write_bytes(b'[model]\nname = "\xff"\n')
    with pytest.raises(InvalidModel, match="not UTF-8") as caught:
        load(file)
    assert caught.value.key == "byte 16"


@pytest.mark.parametrize(
    ("old", "new", "key", "problem"),
    [
        ('title = "logs"', 'titel = "logs"', "stream.0(nccl).", "unknown key|Field required"),
        ("lost = 0.01", "lost = 1.01", "stream.0(nccl).lost", "less than or equal to 1, got 1.01"),
        ("gate = 0.5", "gate = -0.5", "edge.0.gate", "greater than or equal to 0, got -0.5"),
        ("slice_seconds = 15", "slice_seconds = 0", "model.slice_seconds", "greater than 0, got 0"),
        ("seconds = 45", "seconds = nan", "timer.0(limit).seconds", "nan"),
        ("seconds = 45", "seconds = inf", "timer.0(limit).seconds", "inf"),
        ('site = "gpu"', 'site = "rack"', "mode.0(fault).variant.0(graded).site", "'rack'"),
        ('effect = "stall"', 'effect = "stop"', "mechanism.1(stuck).effect", "'stop'"),
        ("share = 0.5", "share = 0.6", "mode.0(fault)", "must sum to 1"),
        ("severity = [0.5, 0.3, 0.2]", "severity = [0.5, 0.3]", "mode.0(fault).variant.0(graded)", "three"),
        ('{ timer = "limit" }', '{ timer = "limit", geometric = 3 }', "edge.3.delay", "one of"),
        ("[0.99, 0.01]", "[0.99, 0.02]", "signal.6(state)", "sum to 1"),
        ("quiet = 0.0001\n", "", "signal.3(timeout)", "needs the key 'quiet'"),
        ('name = "hot"', 'name = "Hot"', "mechanism.0(Hot).name", "pattern"),
        ("copies = { value = 3,", "copies = { value = 3, unit = 1,", "job.copies", "not ['unit']"),
        ("transient = true", 'transient = true\neffect = "crash"', "mechanism.3(told)", "transient"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_file_key_and_value(file, old, new, key, problem):
    with pytest.raises(InvalidModel) as caught:
        load(broken(file, old, new))
    error = caught.value
    assert error.file == str(file)
    assert error.key.startswith(key)
    assert any(text in error.problem for text in problem.split("|"))
    assert error.fix
    assert "\n" not in str(error)


def test_an_unknown_key_is_called_unknown(file):
    with pytest.raises(InvalidModel, match=r"stream\.0\(nccl\)\.colour: unknown key; remove the key"):
        load(broken(file, 'name = "nccl"', 'name = "nccl"\ncolour = "red"'))


def test_further_errors_are_counted(file):
    broken(file, "lost = 0.01", "lost = 2")
    file.write_text(file.read_text().replace("gate = 0.5", "gate = 7"), encoding="utf-8")
    with pytest.raises(InvalidModel, match=r"\(and 1 more\)"):
        load(file)


def test_loading_also_checks_what_stands_between_tables(file):
    with pytest.raises(InvalidModel, match=r"edge\(stuck>gave_up\)\.delay\.timer"):
        load(broken(file, 'timer = "limit"', 'timer = "limes"'))


def test_the_fingerprint_knows_content_not_order():
    raw = tiny.raw()
    assert fingerprint(dict(reversed(raw.items()))) == fingerprint(raw)
    raw["timer"][0]["seconds"] = 46
    assert fingerprint(raw) != fingerprint(tiny.raw())
