"""Memories: steps equal segments, and nothing of later decisions or of other episodes is seen, gradients included."""

from __future__ import annotations

import pytest
import torch

from clusterorch.learning.memory import MEMORIES, Attention, visible

WIDTH, BATCH, LENGTH = 16, 3, 40


def made(name):
    torch.manual_seed(0)
    return MEMORIES[name](WIDTH)


def rows(seed=1):
    draws = torch.Generator().manual_seed(seed)
    x = torch.randn(BATCH, LENGTH, WIDTH, generator=draws)
    begun = torch.rand(BATCH, LENGTH, generator=draws) < 0.1
    begun[:, 0] = True
    return x, begun


def stepped(memory, x, begun, state):
    out = []
    for t in range(x.shape[1]):
        one, state = memory.step(x[:, t], begun[:, t], state)
        out.append(one)
    return torch.stack(out, dim=1), state


def test_what_is_visible_is_told_one_by_one():
    begun = torch.tensor([[False, False, True, False, False]])
    known = torch.tensor([[False, True, True]])
    seen = visible(begun, known, 4)[0].int().tolist()
    assert seen == [
        [0, 1, 1, 1, 0, 0, 0, 0],  # three before it, of which one is not of this episode
        [0, 1, 1, 1, 1, 0, 0, 0],
        [0, 0, 0, 0, 0, 1, 0, 0],  # a new episode
        [0, 0, 0, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 1, 1, 1],
    ]


@pytest.mark.parametrize("window", [1, 3, 8])
def test_what_is_visible_equals_the_slow_rule(window):
    draws = torch.Generator().manual_seed(window)
    begun = torch.rand(4, 12, generator=draws) < 0.2
    known = torch.rand(4, 5, generator=draws).sort(dim=1).values > 0.4
    seen = visible(begun, known, window)
    for b in range(4):
        for t in range(12):
            for j in range(5 + 12):
                same = j <= 5 + t and not any(begun[b, s] for s in range(max(j - 5 + 1, 0), t + 1))
                there = j >= 5 or bool(known[b, j])
                assert bool(seen[b, t, j]) == (same and there and 5 + t - j < window)


@pytest.mark.parametrize("name", MEMORIES)
def test_steps_equal_a_segment_and_segments_equal_each_other(name):
    memory, (x, begun) = made(name), rows()
    with torch.no_grad():
        whole, last = memory.segment(x, begun, memory.fresh(BATCH))
        single, kept = stepped(memory, x, begun, memory.fresh(BATCH))
        first, state = memory.segment(x[:, :17], begun[:, :17], memory.fresh(BATCH))
        second, _ = memory.segment(x[:, 17:], begun[:, 17:], state)
    torch.testing.assert_close(single, whole, rtol=0, atol=1e-5)
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole, rtol=0, atol=1e-5)
    assert all(a.shape == b.shape for a, b in zip(last, kept, strict=True))


@pytest.mark.parametrize("name", MEMORIES)
@pytest.mark.parametrize("at", [5, 20])
def test_the_past_does_not_see_the_future(name, at):
    memory, (x, begun) = made(name), rows()
    changed = x.clone()
    changed[:, at + 1 :] += 1.0
    with torch.no_grad():
        one, _ = memory.segment(x, begun, memory.fresh(BATCH))
        other, _ = memory.segment(changed, begun, memory.fresh(BATCH))
    assert torch.equal(one[:, : at + 1], other[:, : at + 1])
    assert not torch.equal(one[:, at + 1 :], other[:, at + 1 :])
    x.requires_grad_()
    out, _ = memory.segment(x, begun, memory.fresh(BATCH))
    out[:, at, 0].sum().backward()
    assert (x.grad[:, at + 1 :] == 0.0).all()
    assert (x.grad[:, at] != 0.0).any()


@pytest.mark.parametrize("name", MEMORIES)
def test_another_episode_is_not_seen(name):
    memory, (x, _) = made(name), rows()
    begun = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    begun[:, 0] = begun[:, 11] = True
    changed = x.clone()
    changed[:, :11] -= 2.0
    with torch.no_grad():
        one, _ = memory.segment(x, begun, memory.fresh(BATCH))
        other, _ = memory.segment(changed, begun, memory.fresh(BATCH))
        alone, _ = memory.segment(x[:, 11:], begun[:, 11:], memory.fresh(BATCH))
    torch.testing.assert_close(one[:, 11:], other[:, 11:], rtol=0, atol=1e-6)
    torch.testing.assert_close(one[:, 11:], alone, rtol=0, atol=1e-5)
    x.requires_grad_()
    memory.segment(x, begun, memory.fresh(BATCH))[0][:, 15, 0].sum().backward()
    assert (x.grad[:, :11] == 0.0).all()


def test_attention_reaches_back_as_far_as_it_says():
    torch.manual_seed(0)
    memory = Attention(WIDTH, layers=1, window=6)
    x, _ = rows()
    begun = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    begun[:, 0] = True
    x.requires_grad_()
    memory.segment(x, begun, memory.fresh(BATCH))[0][:, 30, 0].sum().backward()
    moved = (x.grad != 0.0).any(dim=2).any(dim=0)
    assert moved.nonzero()[:, 0].tolist() == list(range(25, 31))
