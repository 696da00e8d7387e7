"""Here live the memories of a policy: what turns the rows of an episode, in order, into one vector a decision.

A memory has two forms that give the same numbers: `step` takes one decision and carries a state on, `segment` takes
many at once, with the state from before them.  Neither sees anything of another episode.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional


class Memory(Protocol):
    """What policies need of a memory.  B instances, T decisions, D the width."""

    def fresh(self, batch: int) -> tuple[Tensor, ...]:
        """The state before anything."""

    def step(self, x: Tensor, begun: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """[B, D], [B] whether an episode begins with it -> [B, D], state."""

    def segment(self, x: Tensor, begun: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """[B, T, D], [B, T] -> [B, T, D], state."""


def visible(begun: Tensor, known: Tensor, window: int) -> Tensor:
    """Which decisions a decision may look at: itself and the `window - 1` before it, of its own episode.

    Args:
        begun: [B, T] whether an episode begins with a decision.
        known: [B, P] whether a decision before the segment is of the episode that goes on into it, oldest first.
        window: how far a decision sees, itself included.

    Returns:
        [B, T, P + T] bool, row t for what decision t may see.
    """
    batch, length = begun.shape
    past = known.shape[1]
    episode = torch.cat([torch.zeros(batch, past, dtype=torch.long), begun.long().cumsum(1)], dim=1)
    there = torch.cat([known, torch.ones(batch, length, dtype=torch.bool)], dim=1)
    at = torch.arange(past + length)
    distance = at[past:, None] - at[None, :]
    near = (distance >= 0) & (distance < window)
    same = episode[:, past:, None] == episode[:, None, :]
    return near[None] & same & there[:, None, :]


def _still(begun: Tensor, known: Tensor) -> Tensor:
    """[B, P] which of the newest P decisions are of the episode that the last one belongs to."""
    there = torch.cat([known, torch.ones_like(begun)], dim=1)
    number = torch.cat([torch.zeros_like(known, dtype=torch.long), begun.long().cumsum(1)], dim=1)
    mine = there & (number == number[:, -1:])
    return mine[:, begun.shape[1] :]


class Attention(nn.Module):
    """Causal attention over the decisions of an episode, layer by layer, with a bias that knows only distances.

    Args:
        width: of the vectors, a multiple of `heads`.
        layers, heads: how many.
        window: decisions that one sees, itself included.
    """

    def __init__(self, width: int, layers: int = 2, heads: int = 4, window: int = 32) -> None:
        super().__init__()
        self.width, self.heads, self.window = width, heads, window
        self.blocks = nn.ModuleList(_Block(width, heads, window) for _ in range(layers))
        self.last = nn.LayerNorm(width)

    def fresh(self, batch: int) -> tuple[Tensor, ...]:
        """No decision yet: keys and values of every layer, and which of them are known."""
        past = self.window - 1
        kept = torch.zeros(batch, past, self.width)
        return (*(kept.clone() for _ in range(2 * len(self.blocks))), torch.zeros(batch, past, dtype=torch.bool))

    def step(self, x: Tensor, begun: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """One decision, with what is kept of those before it."""
        out, state = self.segment(x[:, None], begun[:, None], state)
        return out[:, 0], state

    def segment(self, x: Tensor, begun: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Many decisions at once."""
        *kept, known = state
        seen, past, after = visible(begun, known, self.window), self.window - 1, []
        for i, block in enumerate(self.blocks):
            x, keys, values = block(x, seen, kept[2 * i], kept[2 * i + 1])
            after += [keys[:, -past:].detach(), values[:, -past:].detach()] if past else [keys[:, :0], values[:, :0]]
        return self.last(x), (*after, _still(begun, known))


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.further = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.bias = nn.Parameter(torch.zeros(heads, window))

    def forward(self, x: Tensor, seen: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, length, width = x.shape
        inner = self.before(x)
        keys = torch.cat([keys, self.key(inner)], dim=1)
        values = torch.cat([values, self.value(inner)], dim=1)
        past = keys.shape[1] - length
        distance = torch.arange(length)[:, None] + past - torch.arange(past + length)[None, :]
        bias = self.bias[:, distance.clamp(0, self.window - 1)][None].masked_fill(~seen[:, None], -torch.inf)

        def split(z: Tensor) -> Tensor:
            return z.view(batch, -1, self.heads, width // self.heads).transpose(1, 2)

        mixed = functional.scaled_dot_product_attention(split(self.query(inner)), split(keys), split(values), bias)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.further(self.between(x)), keys, values


class Recurrent(nn.Module):
    """A GRU over the decisions of an episode."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width, self.cell = width, nn.GRUCell(width, width)

    def fresh(self, batch: int) -> tuple[Tensor, ...]:
        """Nothing remembered."""
        return (torch.zeros(batch, self.width),)

    def step(self, x: Tensor, begun: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """One decision."""
        hidden = self.cell(x, state[0] * (~begun)[:, None])
        return hidden, (hidden,)

    def segment(self, x: Tensor, begun: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Many decisions, one after the other."""
        out = []
        for t in range(x.shape[1]):
            hidden, state = self.step(x[:, t], begun[:, t], state)
            out.append(hidden)
        return torch.stack(out, dim=1), (state[0].detach(),)


class Recent(nn.Module):
    """A perceptron over the newest `window` decisions of the episode; those before its beginning are zero."""

    def __init__(self, width: int, window: int = 16) -> None:
        super().__init__()
        self.width, self.window = width, window
        self.layers = nn.Sequential(
            nn.Linear(window * (width + 1), 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.GELU()
        )

    def fresh(self, batch: int) -> tuple[Tensor, ...]:
        """Nothing yet."""
        past = self.window - 1
        return torch.zeros(batch, past, self.width), torch.zeros(batch, past, dtype=torch.bool)

    def step(self, x: Tensor, begun: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """One decision."""
        out, state = self.segment(x[:, None], begun[:, None], state)
        return out[:, 0], state

    def segment(self, x: Tensor, begun: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Many decisions at once."""
        kept, known = state
        length = x.shape[1]
        rows = torch.cat([kept, x], dim=1)
        seen = visible(begun, known, self.window)
        windows = [
            torch.cat(
                [rows[:, t : t + self.window] * (mask := seen[:, t, t : t + self.window, None]), mask.float()], dim=2
            )
            for t in range(length)
        ]
        out = self.layers(torch.stack(windows, dim=1).flatten(2))
        return out, (rows[:, length:].detach(), _still(begun, known))


MEMORIES = {"attention": Attention, "recurrent": Recurrent, "recent": Recent}
