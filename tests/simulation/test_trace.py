import json

import numpy as np
import pytest

from clusterorch.errors import IngestError, OutputExists
from clusterorch.simulation import Trace, simulate
from tests.simulation.worlds import world


def test_a_trace_survives_a_folder(tmp_path):
    model = world()
    trace = simulate(model, 40, seed=3, fault="gpu_xid.gsp_hang/2/mild", at=4, do=["link_down=1@9"], command="x")
    trace.save(tmp_path / "trace")
    again = Trace.load(tmp_path / "trace")
    np.testing.assert_array_equal(again.values, trace.values)
    np.testing.assert_array_equal(again.arrival, trace.arrival)
    for kind in ("published", "truth"):
        for name, column in getattr(trace, kind).items():
            np.testing.assert_array_equal(getattr(again, kind)[name], column)
    assert again.events == trace.events
    assert again.faults == trace.faults
    metadata = json.loads((tmp_path / "trace" / "metadata.json").read_text())
    assert metadata["sha256"] == model.sha256
    assert metadata["seed"] == 3
    assert metadata["layout"] == "2x2"
    assert metadata["command"] == "x"


def test_the_truth_names_root_and_proximate():
    model = world()
    trace = simulate(model, 8, fault="gpu_xid.gsp_hang/2/mild", at=4)
    first = trace.faults[0]
    assert (first["slice"], first["mode"], first["variant"]) == (4, "gpu_xid", "gpu_xid.gsp_hang")
    assert (first["site_kind"], first["site"], first["node"], first["severity"]) == ("gpu", 2, 1, "mild")
    assert first["proximate"] == model.modes["gpu_xid"].variant[1].proximate


def test_a_trace_is_not_replaced_unless_forced(tmp_path):
    trace = simulate(world(), 2)
    trace.save(tmp_path)
    with pytest.raises(OutputExists):
        trace.save(tmp_path)
    trace.save(tmp_path, force=True)


def test_what_is_no_trace_is_refused(tmp_path):
    with pytest.raises(IngestError):
        Trace.load(tmp_path)


def test_a_signal_is_found_by_name():
    trace = simulate(world(), 3)
    assert trace.signal("xid").shape == (3, 4)
