"""Here live the observation and action spaces, and how a batch's arrays become observations."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from clusterorch.environment.episodes import Episodes
from clusterorch.environment.window import MOST_DEVIATIONS
from clusterorch.errors import InvalidLayout

Arrays = dict[str, np.ndarray]


def observation_space(episodes: Episodes, pad_nodes: int | None = None, *, flat: bool = False) -> spaces.Dict:
    """Boxes by name, of one axis each if `flat`; `nodes`, `belief_nodes` and `present` have room for `pad_nodes` nodes.

    Raises:
        InvalidLayout: the layout has more nodes than that.
    """
    nodes = episodes.model.layout.nodes
    room = nodes if pad_nodes is None else pad_nodes
    if room < nodes:
        raise InvalidLayout(f"layout {episodes.model.layout}: {nodes} nodes do not fit into pad_nodes={pad_nodes}")
    rows, deviations = episodes.settings.rows, np.float32(MOST_DEVIATIONS)

    def box(low: float, high: float, *shape: int) -> spaces.Box:
        return spaces.Box(np.float32(low), np.float32(high), shape=shape, dtype=np.float32)

    boxes = {
        "job": box(-deviations, deviations, rows, len(episodes.names.job)),
        "nodes": box(-deviations, deviations, rows, room, len(episodes.names.node)),
        "present": box(0, 1, room),
        "rows": box(0, 1, rows),
    }
    if episodes.believes:
        outlook = episodes.outlook
        boxes |= {
            "belief": box(0, 1, outlook.variants.shape[1]),
            "belief_copies": box(0, 1, outlook.copies.shape[1]),
            "belief_nodes": box(0, 1, room, outlook.nodes.shape[2]),
            "cures": box(0, 1, outlook.cures.shape[1]),
        }
    if not episodes.shows_telemetry:
        # Beliefs in place of telemetry: what is published stays.
        published = len(episodes.names.job) - episodes.names.told_job
        boxes["job"] = box(-deviations, deviations, rows, published)
        boxes["nodes"] = box(-deviations, deviations, rows, room, len(episodes.names.node) - episodes.names.told_node)
    if flat:
        boxes = {name: box(one.low.min(), one.high.max(), int(np.prod(one.shape))) for name, one in boxes.items()}
    return spaces.Dict(boxes)


def observe(episodes: Episodes, space: spaces.Dict) -> Arrays:
    """[B, ...] arrays of the space, copies."""
    window, names, outlook = episodes.window, episodes.names, episodes.outlook
    batch, nodes = episodes.batch, episodes.model.layout.nodes
    told = (names.told_node, names.told_job) if not episodes.shows_telemetry else (0, 0)
    found: Arrays = {"job": window.job_rows[:, :, told[1] :].copy(), "rows": window.real.copy()}
    room = space["present"].shape[0]
    found["nodes"] = _padded(window.node_rows[:, :, :, told[0] :], 2, room)
    found["present"] = np.zeros((batch, room), dtype=np.float32)
    found["present"][:, :nodes] = 1.0
    if episodes.believes:
        found |= {
            "belief": np.clip(outlook.variants, 0.0, 1.0), "belief_copies": np.clip(outlook.copies, 0.0, 1.0),
            "belief_nodes": _padded(np.clip(outlook.nodes, 0.0, 1.0), 1, room),
            "cures": np.clip(outlook.cures, 0.0, 1.0),
        }  # fmt: skip
    return {name: found[name].reshape(batch, *space[name].shape) for name in space}


def _padded(values: np.ndarray, axis: int, room: int) -> np.ndarray:
    if values.shape[axis] == room:
        return values.copy()
    widths = [(0, room - values.shape[axis] if a == axis else 0) for a in range(values.ndim)]
    return np.pad(values, widths)
