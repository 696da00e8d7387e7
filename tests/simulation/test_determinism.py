import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

from clusterorch.simulation import Simulator, simulate
from tests.simulation.worlds import world

FAULT = "gpu_xid.lost_from_bus"


def digest(simulator, slices, instance):
    """SHA-256 of everything that one instance of a batch has been, for some slices."""
    seen = hashlib.sha256()
    for _ in range(slices):
        simulator.step()
        for name, array in simulator.state._asdict().items():
            if name != "situation":  # a number by order of discovery
                seen.update(np.ascontiguousarray(array[instance]).tobytes())
    return seen.hexdigest()


@pytest.mark.parametrize("batch", [1, 2, 3, 7, 64, 257])
def test_an_instance_is_the_same_in_any_batch(batch):
    model, own = world(), 256
    onset = np.full_like(model.network.onset, 0.01)
    alone = digest(Simulator(model, 1, seed=5, first_instance=own, onset=onset), 30, 0)
    first = own - batch + 1
    company = Simulator(model, batch, seed=5, first_instance=max(0, first), onset=onset)
    assert digest(company, 30, own - max(0, first)) == alone


def test_instances_seeds_episodes_and_domains_differ():
    model = world()
    options = [{}, {"seed": 1}, {"episode": 1}, {"domain": "other"}, {"first_instance": 1}]
    assert len({digest(Simulator(model, **o), 3, 0) for o in options}) == len(options)


def test_a_reset_is_a_new_simulator():
    model = world()
    fresh = Simulator(model, 3, seed=4, episode=9, fault=FAULT, at=2, do=["link_down=1@4:6"])
    used = Simulator(model, 3, seed=4, do=["link_down=1@4:6"])
    for _ in range(7):
        used.step()
    used.reset(9, fault=FAULT, at=2)
    assert used.time == 0
    assert digest(used, 20, 2) == digest(fresh, 20, 2)


def test_recording_changes_nothing():
    model = world()
    options = {"seed": 2, "fault": FAULT, "at": 3}
    loud, quiet = (simulate(model, 60, record=record, **options) for record in (True, False))
    assert loud.events
    assert not quiet.events
    np.testing.assert_array_equal(loud.values, quiet.values)
    for name, column in loud.truth.items():
        np.testing.assert_array_equal(column, quiet.truth[name])


def test_a_slice_may_be_learnt_before_or_after_others():
    """The order in which situations are met leaves no trace."""
    model = world()
    early = Simulator(model, 1, seed=4, fault=FAULT, at=0)
    late = Simulator(model, 1, seed=4, fault=FAULT, at=0)
    other = Simulator(model, 1, seed=9, fault="nan_injection.bad_gradient", at=0)
    for _ in range(40):
        other.step()
    late.situations = other.situations
    assert digest(early, 60, 0) == digest(late, 60, 0)


def test_hash_order_does_not_matter():
    program = (
        "import hashlib; from clusterorch import models; from clusterorch.simulation import simulate\n"
        "t = simulate(models.load('reference', layout='2x2'), 60, seed=1, fault='gpu_xid.lost_from_bus', at=2)\n"
        "print(hashlib.sha256(t.values.tobytes() + repr(t.events).encode()).hexdigest())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True,
            text=True, check=True,
        ).stdout
        for seed in ("0", "77")
    }  # fmt: skip
    assert len(found) == 1
