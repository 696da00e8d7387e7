"""Advice: expected clearance under the belief, against the filter's own step of an action."""

import dataclasses

import numpy as np
import pytest

from clusterorch.diagnosis.advice import WORTH, advise
from clusterorch.diagnosis.suspects import suspects_of
from clusterorch.inference.actions import action_kernel
from clusterorch.inference.beliefs import Belief
from tests.diagnosis.made_logs import lost_from_bus


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return lost_from_bus(tmp_path_factory.mktemp("logs"))


def with_belief(found, vector):
    return dataclasses.replace(found, belief=Belief(found.belief.network, vector / vector.sum()))


def state(found, variant, host, site_kind):
    """All mass on one variant at the first site of a host."""
    network = found.belief.network
    block = next(b for b in network.blocks if b.variant.name == variant)
    node = found.universe.hosts.index(host)
    site = int(np.flatnonzero(network.layout.node_of(site_kind) == node)[0])
    vector = np.zeros(network.states)
    vector[block.offset + site] = 1.0
    return vector


def test_the_chance_is_the_mean_of_the_declared_effects(found):
    belief = found.belief
    advice = advise(found)
    assert advice.options == sorted(advice.options, key=lambda option: -option.clears)
    for option in advice.options:
        action = next(a for a in belief.network.spec.action if a.name == option.name)
        if action.target != "node" or option.target.startswith("node not named"):
            continue
        node = found.universe.hosts.index(option.target.removeprefix("node "))
        kernel = action_kernel(belief.network, option.name, node)
        expected, start = 0.0, 0
        for block in belief.network.blocks:
            for site in range(block.sites):
                if not block.variant.benign:
                    for c, configuration in enumerate(block.chain.configurations):
                        if not (kernel.restarts and configuration.poisoned):
                            expected += kernel.clears[start + site] * belief.block(block)[:, c, site].sum()
            start += block.sites
        assert option.clears == pytest.approx(expected, abs=1e-12)
        assert option.clears + option.left == pytest.approx(1.0 - belief.modes["healthy"], abs=1e-9)


@pytest.mark.parametrize("host", ["n3", "n7"])
def test_the_target_is_the_host_on_which_the_fault_lives(found, host):
    advice = advise(with_belief(found, state(found, "gpu_xid.lost_from_bus", host, "gpu")))
    assert not advice.waits
    assert advice.best.target == f"node {host}"
    assert advice.best.clears == pytest.approx(0.99)
    assert advice.best.cost
    assert advice.second is not None
    assert advice.second.clears <= advice.best.clears


@pytest.mark.parametrize("host", ["n3", "n7"])
def test_the_host_on_which_the_fault_lives_is_looked_at_first(found, host):
    belief = with_belief(found, state(found, "gpu_xid.lost_from_bus", host, "gpu")).belief
    first, *others = suspects_of(belief, found.universe)
    assert (first.host, first.probability, first.suspected) == (host, pytest.approx(1.0), True)
    assert not any(other.suspected for other in others)


def test_suspects_bring_the_names_that_the_logs_give_them(found):
    named = {suspect.host: suspect.names for suspect in suspects_of(found.belief, found.universe)}
    assert named["n3"]["device"] == "ibp24s0"
    assert named["n7"]["pci"].startswith("0000:61:00")


def test_a_healthy_job_is_left_alone(found):
    vector = np.zeros(found.belief.network.states)
    vector[0] = 1.0
    advice = advise(with_belief(found, vector))
    assert advice.waits
    assert advice.best.name == "wait"
    assert advice.options == []


def test_an_action_that_would_rather_be_for_nothing_is_not_advised(found):
    vector = state(found, "gpu_xid.lost_from_bus", "n7", "gpu")
    sick = vector.copy()
    for share, waits in ((0.49, True), (0.52, False)):
        mixed = share * sick
        mixed[0] = 1.0 - share
        assert advise(with_belief(found, mixed)).waits is waits


def test_what_no_action_clears_is_waited_for(found):
    # Poisoned copies bring the fault back whatever is restarted, unless they are discarded.
    network = found.belief.network
    block = next(b for b in network.blocks if b.chain.law.copies)
    counts = np.array([c.poisoned for c in block.chain.configurations])
    c = int(np.argmax(counts))
    vector = np.zeros(network.states)
    vector[block.offset + c * block.sites] = 1.0
    advice = advise(with_belief(found, vector))
    kept = network.layout.copies
    assert counts[c] == kept
    assert all(option.clears < WORTH for option in advice.options)
    assert advice.waits


def test_without_a_belief_there_is_no_advice(found):
    assert advise(dataclasses.replace(found, belief=None)) is None
