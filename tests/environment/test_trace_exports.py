"""What other programs read: Chrome's JSON as Perfetto takes it, and OpenMetrics text, both held to their formats."""

import json
import math
import re
from collections import defaultdict
from itertools import pairwise

import pytest

from clusterorch.environment.tables import EpisodeTrace
from clusterorch.environment.whatif import clock_of
from clusterorch.reports.openmetrics import openmetrics
from clusterorch.reports.perfetto import perfetto
from tests.environment.played import trace_of

MOVED = "move=restart_rank:1@40"
REPEATED = ("fault=gpu_xid.gsp_hang/1@90", MOVED)  # a crash, starts that fail, and a job that is given up


@pytest.fixture(scope="module", params=[(MOVED,), REPEATED], ids=["mild", "crash"])
def trace(request):
    return trace_of(*request.param)


@pytest.fixture(scope="module")
def drawn(trace):
    return json.loads(perfetto(trace))


@pytest.fixture(scope="module")
def scraped(trace):
    return parse_openmetrics(openmetrics(trace))


# ---------------------------------------------------------------- Perfetto


def slices(drawn):
    return [entry for entry in drawn["traceEvents"] if entry["ph"] == "X"]


def test_the_file_is_one_object_of_known_events(drawn):
    assert drawn["displayTimeUnit"] in ("ms", "ns")
    for entry in drawn["traceEvents"]:
        assert entry["ph"] in "MXCsf"
        assert isinstance(entry["name"], str)
        assert entry["name"]
        assert all(isinstance(entry[key], int) and entry[key] >= 0 for key in ("pid", "tid", "ts"))
        if entry["ph"] == "X":
            assert isinstance(entry["dur"], int)
            assert entry["dur"] >= 0
        if entry["ph"] == "C":
            assert entry["args"]
            assert all(math.isfinite(value) for value in entry["args"].values())


def test_a_process_is_a_node_and_a_thread_a_rank(drawn):
    processes = {e["pid"]: e["args"]["name"] for e in drawn["traceEvents"] if e["name"] == "process_name"}
    assert processes == {1: "job", 2: "node 0", 3: "node 1"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in drawn["traceEvents"] if e["name"] == "thread_name"}
    ranks = {name: pid for (pid, _), name in threads.items() if re.fullmatch(r"rank \d+", name)}
    assert ranks == {"rank 0": 2, "rank 1": 2, "rank 2": 3, "rank 3": 3}
    assert len({tid for _, tid in threads}) == len(threads), "a thread belongs to one process"
    assert {(e["pid"], e["tid"]) for e in slices(drawn)} <= threads.keys()


def test_slices_of_a_thread_nest(drawn):
    """The format asks for it; what overlaps otherwise is moved to another track."""
    by_thread = defaultdict(list)
    for entry in slices(drawn):
        by_thread[entry["pid"], entry["tid"]].append((entry["ts"], entry["ts"] + entry["dur"]))
    for thread, spans in by_thread.items():
        stack = []
        for start, stop in sorted(spans, key=lambda span: (span[0], -span[1])):
            while stack and stack[-1] <= start:
                stack.pop()
            assert not stack or stop <= stack[-1], (thread, start, stop)
            stack.append(stop)


def test_arrows_run_along_the_true_causes(drawn, trace):
    ends, by_thread = defaultdict(dict), defaultdict(list)
    for entry in slices(drawn):
        by_thread[entry["pid"], entry["tid"]].append(entry)
    for entry in drawn["traceEvents"]:
        if entry["ph"] in "sf":
            assert entry["ph"] not in ends[entry["id"]]
            ends[entry["id"]][entry["ph"]] = entry
    assert len(ends) == sum(len(event.causes) for event in trace.events) > 0
    for arrow in ends.values():
        assert arrow["f"]["bp"] == "e"
        assert arrow["s"]["ts"] <= arrow["f"]["ts"]
        for end in arrow.values():
            held = [x["ts"] <= end["ts"] <= x["ts"] + x["dur"] for x in by_thread[end["pid"], end["tid"]]]
            assert any(held), "an arrow that no slice holds is not drawn"


def test_phases_moves_faults_and_counters_are_there(drawn, trace):
    by_category = defaultdict(list)
    for entry in slices(drawn):
        by_category[entry["cat"]].append(entry)
    (moved,) = by_category["move"]
    assert (moved["name"], moved["ts"], moved["args"]["legal"]) == ("restart_rank:1", 600_000_000, True)
    entered = {row["variant"] for row in trace.rows("truth") if row["variant"]}
    assert {entry["name"] for entry in by_category["fault"]} == entered
    job = [entry for entry in by_category["phase"] if entry["pid"] == 1]
    assert sum(entry["dur"] for entry in job) == 3_600_000_000
    assert len(by_category["phase"]) == 5 * len(job)
    counted = {entry["name"] for entry in drawn["traceEvents"] if entry["ph"] == "C"}
    assert {"kept tokens", "slice", "belief", "temperature"} <= counted
    kept = [e["args"]["slices"] for e in drawn["traceEvents"] if e["ph"] == "C" and e["name"] == "kept tokens"]
    assert kept == [row["kept"] for row in trace.rows("truth")]


# ---------------------------------------------------------------- OpenMetrics

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)?\}})? (NaN|[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?) (\d+\.\d+)")
TYPES = {"gauge": [""], "counter": ["_total"], "stateset": [""]}
RESERVED = ("_total", "_created", "_count", "_sum", "_bucket", "_gcount", "_gsum", "_info")


def parse_openmetrics(text):
    """Families as {name: (type, {labels: [(time, value)]})}; an assertion fails where the text breaks a rule."""
    assert text.endswith("# EOF\n")
    assert text.count("# EOF") == 1
    families, current, labels_before = {}, None, None
    for line in text.removesuffix("# EOF\n").splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert re.fullmatch(NAME, name)
            assert name not in families, f"{name} stands twice"
            assert not name.endswith(RESERVED), name
            families[name], current, labels_before = (kind, {}), name, None
            assert kind in TYPES
        elif line.startswith("# HELP "):
            assert line.split(" ")[2] == current
            assert not families[current][1], "help stands before the samples"
        else:
            found = SAMPLE.fullmatch(line)
            assert found, line
            kind, samples = families[current]
            assert found[1] in [current + suffix for suffix in TYPES[kind]], line
            labels = tuple(re.findall(r'([a-zA-Z0-9_]+)="((?:[^"\\]|\\.)*)"', found[2] or ""))
            assert len(dict(labels)) == len(labels)
            if labels != labels_before:
                assert labels not in samples, f"samples of one metric are apart: {line}"
                samples[labels], labels_before = [], labels
            if samples[labels]:
                assert float(found[4]) > samples[labels][-1][0], f"time does not go on: {line}"
                assert kind != "counter" or float(found[3]) >= samples[labels][-1][1], line
            samples[labels].append((float(found[4]), float(found[3])))
            assert kind != "stateset" or (current in dict(labels) and float(found[3]) in (0, 1)), line
    return families


def test_the_text_follows_the_format(scraped, trace):
    first = 1_741_089_600.0  # 2025-03-04 12:00:00
    assert clock_of(trace, 0) == "12:00:00"
    times = [time for _, samples in scraped.values() for told in samples.values() for time, _ in told]
    assert min(times) == first
    assert max(times) == first + 3600.0


def test_samples_are_those_that_were_delivered(scraped, trace):
    rows = [row for row in trace.rows("telemetry") if row["signal"] == "temperature" and row["number"] == 2]
    told = scraped["clusterorch_temperature"][1][("stream", "smi"), ("gpu", "2"), ("node", "1")]
    assert [(time - 1_741_089_600.0, value) for time, value in told] == [(row["time"], row["value"]) for row in rows]


def test_a_class_is_told_when_it_speaks_and_when_it_falls_silent(scraped, trace):
    rows = [row for row in trace.rows("telemetry") if row["signal"] == "ecc_corrected" and row["number"] == 1]
    told = scraped["clusterorch_ecc_corrected"][1][("stream", "smi"), ("gpu", "1"), ("node", "0")]
    assert [(t - 1_741_089_600.0, v) for t, v in told if v] == [(row["time"], row["value"]) for row in rows]
    values = [value for _, value in told]
    assert not any(a == b == 0.0 for a, b in pairwise(values)), "zeros in a row tell nothing"


def test_beliefs_states_and_moves_are_told(scraped, trace):
    kind, beliefs = scraped["clusterorch_belief"]
    assert kind == "gauge"
    assert len(beliefs) == len(trace.metadata["modes"])
    for told in zip(*beliefs.values(), strict=True):
        assert sum(value for _, value in told) == pytest.approx(1.0)
    kind, states = scraped["clusterorch_phase"]
    assert kind == "stateset"
    for told in zip(*states.values(), strict=True):
        assert sum(value for _, value in told) == 1
    kind, moves = scraped["clusterorch_moves"]
    assert kind == "counter"
    assert {labels: told[-1][1] for labels, told in moves.items()} == {(("action", "restart_rank"),): 1.0}


def test_nothing_of_the_truth_is_told(trace):
    table = trace.tables["truth"]
    rows = [row | {"variant": "other", "kept": 0.0, "mode": "other"} for row in table.to_pylist()]
    falsified = dict(trace.tables) | {"truth": type(table).from_pylist(rows, schema=table.schema)}
    assert openmetrics(EpisodeTrace(falsified, [], trace.metadata)) == openmetrics(trace)


@pytest.mark.parametrize(
    "broken",
    [
        "a 1 1.0\n# EOF\n",
        "# TYPE a gauge\na 1 1.0\n",
        "# TYPE a gauge\na 1 2.0\na 1 1.0\n# EOF\n",
        '# TYPE a gauge\na{b="1"} 1 1.0\na{b="2"} 1 1.0\na{b="1"} 1 2.0\n# EOF\n',
        "# TYPE a counter\na 1 1.0\n# EOF\n",
        "# TYPE a_total gauge\n# EOF\n",
        '# TYPE a gauge\na{b="x"y"} 1 1.0\n# EOF\n',
    ],
)
def test_the_grammar_notices_what_is_wrong(broken):
    with pytest.raises((AssertionError, KeyError, TypeError)):
        parse_openmetrics(broken)
