"""Agents made by hand: what they do is known before they are asked, so no test trains one."""

import torch

from clusterorch.environment.making import episodes_of
from clusterorch.learning.agents import save_agent
from clusterorch.learning.network import Policy
from clusterorch.learning.seeing import shape_of

BY_CURES = 2 * 32 + 32 + 1  # where the move layer reads what a move would end, at width 32


def made(observe="belief", width=32):
    """An agent fresh from its seed."""
    torch.manual_seed(0)
    return Policy(shape_of(episodes_of(1, layout="1x2", hours=0.2, observe=observe), critic=True, width=width))


@torch.no_grad()
def ending_most(observe="belief"):
    """An agent whose logit of every move is 50 times what the move would end, as GELU rounds it; waiting has 2."""
    policy = made(observe)
    first, last = policy.move[0], policy.move[-1]
    for layer in (first, last):
        layer.weight.zero_()
        layer.bias.zero_()
    first.weight[0, BY_CURES] = 10.0
    last.weight[0, 0] = 5.0
    policy.readiness.weight.zero_()
    policy.readiness.weight[0] = 2.0
    return policy


@torch.no_grad()
def restless(observe="belief", patience=0.0):
    """An agent to whom all moves are nearly alike, waiting beside."""
    policy = made(observe)
    policy.readiness.weight.zero_()
    policy.readiness.weight[0] = patience
    return policy


def kept(folder, policy, observe="belief", **run):
    """Write it as training does."""
    return save_agent(folder, policy, {"run": {"observe": observe, "hours": 4.0} | run}, "an agent\n", force=True)
