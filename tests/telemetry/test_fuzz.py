import pytest

from tests.telemetry import fuzz


@pytest.mark.parametrize("kind", sorted(fuzz.KINDS))
def test_nothing_that_is_read_breaks_the_reader(kind, tmp_path):
    results = [fuzz.read(kind, number, tmp_path) for number in range(300)]
    # A generator that makes nothing of worth would let everything pass.
    assert any(result is not None for result in results)
    if kind != "noise":
        assert sum(result is not None and bool(result.readings) for result in results) > 15


def test_an_input_is_made_from_its_number(tmp_path):
    assert fuzz.read("packed", 7, tmp_path) == fuzz.read("packed", 7, tmp_path)
