"""Here lives the card of a trained agent: on what it was trained, how good it is, and how to make it again."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clusterorch.evaluation.journal import Record

_SEES = {
    "raw": "telemetry as it arrives and what is published of the job",
    "belief": "the exact posterior on the telemetry, and what is published of the job",
    "both": "telemetry, the exact posterior on it, and what is published of the job",
    "truth": "the true failure, which no agent in the field could know: an upper reference",
}
_TOGETHER = "torchrun --standalone --nproc-per-node={} -m clusterorch train"
_ROWS = ("policy", "kept", "recovered share", "95 %", "moves", "false moves", "given up")


def card(folder: Path, names: Sequence[str], result: Record) -> str:
    """The text of an agent's README.

    Args:
        folder: of the agent.
        names: that it has in the result, as it plays its likeliest moves and as it draws them.
        result: of paired episodes with all policies.
    """
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    run, shape, made = config["run"], config["shape"], result["made"]
    processes = config.get("processes", 1)
    chosen = "chosen among its checkpoints by validation episodes" if config["shares"] else "as training left it"
    train = "clusterorch train" if processes == 1 else _TOGETHER.format(processes)
    sites = ", ".join(f"{layout} ({profile})" for layout in run["layouts"] for profile in run["profiles"])
    lines = [
        f"# {folder.name}", "",
        _wrapped(
            f"An agent that observes `{run['observe']}`: {_SEES[run['observe']]}. PPO with {run['memory']} over "
            f"decisions, width {shape['width']}, one set of weights for every layout; {chosen}, after "
            f"{config['decisions']:,} decisions of {run['steps']:,} asked for, with seed {run['seed']}."
        ), "",
        _wrapped(
            f"Trained on layouts and site profiles {sites}{_laid_over(run['overlays'])}, {run['instances']} "
            f"instances of each, episodes of {run['hours']:g} h. What helped it in training only is in `config.json` "
            "under `run.schedule`: a critic that sees the truth, a potential, and the oracle's judgement of moves with "
            "a weight that falls to nothing."
        ), "",
    ]  # fmt: skip
    for layout, scores in result["layouts"].items():
        lines += [f"## On {scores['episodes']} unseen episodes on {layout}", ""]
        lines += ["| " + " | ".join(_ROWS) + " |", "|" + " --- |" * len(_ROWS)]
        shown = {name: row for name, row in scores["rows"].items() if "@" not in name or name in names}
        for name, row in sorted(shown.items(), key=lambda item: item[1]["kept"]):
            lines.append(
                f"| {name} | {row['kept']:.1f} | {row['share']:.3f} | {row['low']:.3f} to {row['high']:.3f} | "
                f"{row['moves']:.2f} | {row['false_moves']:.2f} | {row['lost']:.3f} |"
            )
        lines.append("")
    lines += [
        _wrapped(
            "Kept is surviving good training in slices of healthy training; the share is (policy - wait) / (oracle - "
            f"wait) with a bootstrap interval over paired episodes, seed {made['seed']}, model {made['model']} "
            f"{made['sha256'][:12]}."
        ),
        "", "## Use", "", "```sh",
        f"clusterorch play --policy models/policies/{folder.name} --layout 4x8",
        f"{train} --config models/policies/{folder.name}/config.json --out build/{folder.name}",
        "```", "",
        _wrapped(
            "The second command trains it again, into `final`; a run is the same to the bit on one machine with one "
            "number of threads and processes. It has learned on simulated episodes of the reference model only, and is "
            "no adviser to trust without a person."
        ),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _laid_over(overlays: Sequence[str]) -> str:
    return "".join(f", with overlay `{name}`" for name in overlays)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 110)
