"""What invented logs tell, line by line: the logs and what they tell lie in `said/`.

`tells` has the signal and its value, its entity, or both; each log tells that and no other of the `signals`.
"""

import tomllib
from pathlib import Path

import pytest

from clusterorch.telemetry.patterns import load_formats, shipped_formats
from clusterorch.telemetry.reading import read_paths

FORMATS = load_formats(shipped_formats())
FILES = [tomllib.loads(file.read_text(encoding="utf-8")) for file in sorted(Path(__file__).with_name("said").iterdir())]
LOGS = [(log, file["signals"]) for file in FILES for log in file["log"]]


@pytest.mark.parametrize(("log", "signals"), LOGS, ids=[f"{log['name']}-{signals[0]}" for log, signals in LOGS])
def test_a_log_tells_what_it_tells_and_nothing_else(log, signals, tmp_path):
    (tmp_path / "some.log").write_text(log["text"] + "\n", encoding="utf-8")
    readings = [reading for reading in read_paths([tmp_path], FORMATS).readings if reading.signal in signals]
    wanted = [tuple(part) for part in log["tells"]]
    said = {(r.signal, r.value, str(r.entity)) for r in readings}
    assert {_as_long(part, wanted) for part in said} == set(wanted)


def _as_long(said, wanted):
    """A reading in the form in which the log is said to tell its signal."""
    signal, value, entity = said
    forms = [(signal, value, entity), (signal, value), (signal, entity)]
    return next((form for form in forms if form in wanted), said)
