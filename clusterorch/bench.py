"""Here lives the benchmark: what the engine costs, each figure beside its alternative in the same run.

Times are process CPU time on one core, medians of several repeats.  Nothing here is a test: the
aims are printed beside what was measured.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from rich.console import Console
from rich.table import Table

from clusterorch import models
from clusterorch.errors import OutputExists
from clusterorch.evaluation.environment_costs import environment_costs
from clusterorch.evaluation.journal import provenance
from clusterorch.evaluation.learning_costs import all_costs, others, two_processes
from clusterorch.evaluation.log_costs import measure
from clusterorch.inference.backward import log_likelihoods
from clusterorch.inference.filtering import NO_SOFT, Filter, SliceEvidence, likelihood_ratios
from clusterorch.inference.plan import make_plan
from clusterorch.inference.priors import STEP
from clusterorch.inference.transition import NO_CLASS, predict
from clusterorch.models import Model
from clusterorch.probability.elementary import normal_quantile
from clusterorch.probability.noise import fill_uniform_block
from clusterorch.simulation.simulator import Simulator

MOVING = 0
AIMS = {
    "env_belief_8x8_steps_per_s": 40_000, "env_raw_8x8_steps_per_s": 100_000,
    "filter_8x8_slices_per_s": 50_000, "filter_2048x8_ms_per_slice": 50, "filter_over_hmmlearn": 5,
    "filter_over_pgmpy": 1_000, "logs_mb_per_s": 20, "sampler_8x8_slices_per_s": 150_000, "sampler_over_noise": 2.5,
    "train_over_sb3_recurrent": 5, "train_transformer_belief_steps_per_s": 5_000,
    "train_transformer_raw_steps_per_s": 5_000,
}  # fmt: skip
SEEDS = {"telemetry": 7, "sampler": 1}
LAYOUTS = ("1x8", "8x8", "64x8", "512x8", "2048x8")


def median_seconds(work: Callable[[], Any], repeats: int = 5) -> float:
    """Median CPU seconds of a call, after one call to warm up."""
    work()
    found = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return statistics.median(found)


def only_gpu_channels(model: Model) -> Model:
    """The same model with the signals of GPUs alone: 12 channels a GPU in the reference model."""
    kept = [signal for signal in model.spec.signal if signal.entity == "gpu"]
    return replace(model, spec=model.spec.model_copy(update={"signal": kept}))


def sampled_values(model: Model, batch: int, slices: int, seed: int = SEEDS["telemetry"]) -> list[np.ndarray]:
    """[slices] of [batch, width]: healthy telemetry of the model's own sampler."""
    simulator = Simulator(model, batch, seed=seed, domain="bench")
    return [simulator.step().values.copy() for _ in range(slices)]


class Figures:
    """What was measured, and the rows of the table."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}
        self.rows: list[tuple[str, str, str]] = []

    def add(self, name: str, value: float, beside: str = "") -> None:
        """One figure and what stands beside it."""
        self.figures[name] = float(f"{value:.6g}")
        aim = f"{AIMS[name]:,}" if name in AIMS else ""
        notes = (f"aim {aim}" if aim else "", beside)
        self.rows.append((name, f"{value:,.4g}", "; ".join(text for text in notes if text)))


def filter_seconds(model: Model, batch: int, slices: int) -> float:
    """CPU seconds a slice of one instance, filtered in a batch."""
    values = sampled_values(model, batch, slices)
    f = Filter(model.network, batch=batch)
    phase, moving = np.full(batch, STEP), np.full(batch, MOVING)
    age, ends = np.zeros(batch, dtype=np.int64), np.zeros(batch, dtype=np.bool_)

    def run() -> None:
        for one in values:
            f.step_batch(one, phase, moving, age, ends)

    return median_seconds(run) / (batch * slices)


def bench_filter(figures: Figures, *, quick: bool) -> None:
    """The filter on 8x8 and by layout, with the growth of its cost in GPUs."""
    batch = 16 if quick else 256
    full = models.load("reference", layout="8x8")
    seconds = filter_seconds(full, batch, 4)
    lean = filter_seconds(only_gpu_channels(full), batch, 4)
    figures.add(
        "filter_8x8_slices_per_s", 1.0 / seconds,
        f"{full.network.states:,} states, {full.network.width:,} values a slice; batch {batch}",
    )  # fmt: skip
    figures.add("filter_8x8_12_channels_slices_per_s", 1.0 / lean, "only the 12 channels of each GPU")
    costs = []
    for layout in LAYOUTS[: 3 if quick else len(LAYOUTS)]:
        model = models.load("reference", layout=layout)
        cost = filter_seconds(model, 1, 3)
        costs.append((model.layout.count("gpu"), cost))
        figures.add(f"filter_{layout}_ms_per_slice", cost * 1e3, f"{model.network.states:,} states, batch 1")
    gpus, times = np.log([g for g, _ in costs[-3:]]), np.log([c for _, c in costs[-3:]])
    exponent = float(np.polyfit(gpus, times, 1)[0])
    figures.add("filter_growth_exponent", exponent, "cost ~ GPUs ** this, over the three largest; 1 is linear")


@njit(cache=True, error_model="numpy")
def _dense_column(plan, onset, weights, basis, out):
    for i in range(basis.shape[0]):
        predict(plan, STEP, 0, False, onset, weights, basis[i], out[i])  # noqa: FBT003


def dense_transition(f: Filter) -> np.ndarray:
    """[states, states] the transition matrix of a moving job, row by row."""
    basis, out = np.eye(f.network.states), np.empty((f.network.states, f.network.states))
    _dense_column(f.plan, f.prior.onset(0, STEP), f.weights, basis, out)
    return out


def bench_hmmlearn(figures: Figures) -> None:
    """The same dense model in hmmlearn, which gets its likelihood frames for nothing."""
    from hmmlearn import _hmmc

    model = models.load("reference", layout="1x8")
    f = Filter(model.network)
    slices = 50
    values = [one[0] for one in sampled_values(model, 1, slices)]
    frames = np.empty((slices, model.network.states))
    for t, one in enumerate(values):
        likelihood_ratios(f.plan, STEP, one, f.last[0], f.gap[0], f._scratch)
        log_likelihoods(f.plan, STEP, NO_CLASS, f._scratch[3], NO_SOFT, frames[t])
    start = np.zeros(model.network.states)
    start[0] = 1.0
    matrix = dense_transition(f)
    theirs = median_seconds(lambda: _hmmc.forward_log(start @ matrix, matrix, frames), 3)

    def ours() -> None:
        mine = Filter(model.network, plan=f.plan)
        for one in values:
            mine.step(SliceEvidence(one))

    mine = median_seconds(ours, 3)
    _, lattice = _hmmc.forward_log(start @ matrix, matrix, frames)
    last = np.exp(lattice[-1] - np.logaddexp.reduce(lattice[-1]))
    check = Filter(model.network, plan=f.plan)
    for one in values:
        check.step(SliceEvidence(one))
    difference = float(np.abs(last - check.belief[0]).max())
    figures.add(
        "filter_over_hmmlearn", theirs / mine,
        f"{model.network.states} states, {slices} slices: {mine * 1e3:.1f} ms against {theirs * 1e3:.1f} ms; "
        f"largest difference {difference:.0e}",
    )  # fmt: skip


def bench_pgmpy(figures: Figures) -> None:
    """One variant's unrolled network in pgmpy, with evidence on its mechanisms; ours over the same variant."""
    from clusterorch.causal import pgmpy_bridge
    from clusterorch.causal.unrolled import Context

    model = one_variant(models.load("reference", layout="1x2"))
    block, slices = model.network.blocks[0], 4
    contexts = [Context("step", save_ends=False)] * slices
    network = pgmpy_bridge.to_pgmpy(model.spec, model.layout, block.variant.name, slices, contexts)
    names = [m.name for m in block.variant.law.mechanisms]
    likelihoods = {f"{name}[{t}]": [0.7, 0.3] for name in names for t in range(slices)}
    theirs = median_seconds(lambda: pgmpy_bridge.marginal(network, f"fault[{slices - 1}]", likelihoods), 3)
    plan = make_plan(model.network)
    bits = [np.array([c.bits >> i & 1 for c in block.chain.configurations]) for i in range(len(names))]
    soft = np.zeros(model.network.states)
    unlikely = sum(np.log(np.where(bit > 0, 0.3, 0.7)) for bit in bits)
    soft[0] = len(names) * np.log(0.7)
    soft[block.offset : block.offset + block.size] = np.broadcast_to(unlikely[None, :, None], block.shape()).ravel()
    silent = np.full(model.network.width, np.nan)

    def ours() -> Filter:
        mine = Filter(model.network, plan=plan)
        for _ in range(slices):
            mine.step(SliceEvidence(silent, soft=soft))
        return mine

    batch = 256
    mine = filter_seconds(model, batch, slices) * slices
    stated = pgmpy_bridge.marginal(network, f"fault[{slices - 1}]", likelihoods)
    difference = abs(float(stated[0]) - ours().posterior().empty)
    figures.add(
        "filter_over_pgmpy", theirs / mine,
        f"{block.variant.name}, {slices} slices: {theirs * 1e3:.1f} ms against {mine * 1e3:.4f} ms "
        f"in a batch of {batch}, telemetry weighed too; "
        f"difference {difference:.0e}",
    )  # fmt: skip


def one_variant(model: Model) -> Model:
    """The model with nothing but the first variant of its second mode: some mechanisms, edges and healing."""
    mode = model.spec.mode[1]
    kept = mode.model_copy(update={"variant": [mode.variant[0].model_copy(update={"share": 1.0})]})
    name = f"{mode.name}.{mode.variant[0].name}"
    edges = [edge for edge in model.spec.edge if "." not in edge.from_ or edge.from_ == name]
    return replace(model, spec=model.spec.model_copy(update={"mode": [kept], "benign": [], "edge": edges}))


def noise_seconds(gpus: int, channels: int, normals: int, slices: int) -> float:
    """CPU seconds a slice to draw the uniforms of a slice of telemetry, `normals` channels of them as normals."""
    out = np.empty((4, gpus))

    def run() -> None:
        _draw(out, channels // 4, normals, slices)

    return median_seconds(run) / slices


@njit(cache=True, error_model="numpy")
def _draw(out, blocks, normals, slices):
    for t in range(slices):
        for block in range(blocks):
            fill_uniform_block(out, t, 0, block, (1, 2))
            for row in range(min(4, normals - 4 * block)):
                for e in range(out.shape[1]):
                    out[row, e] = normal_quantile(out[row, e])


def bench_sampler(figures: Figures, *, quick: bool) -> None:
    """The sampler with 12 channels a GPU, against drawing the same noise."""
    model = only_gpu_channels(models.load("reference", layout="8x8"))
    batch, slices = (16, 4) if quick else (256, 4)
    simulator = Simulator(model, batch, seed=SEEDS["sampler"], domain="bench")

    def run() -> None:
        for _ in range(slices):
            simulator.step()

    seconds = median_seconds(run) / (batch * slices)
    gpus, channels = model.layout.count("gpu"), len(model.spec.signal)
    normals = sum(signal.family in ("gaussian", "log_ratio") for signal in model.spec.signal)
    noise, drawn = (noise_seconds(gpus, channels, count, 2000) for count in (0, normals))
    beside = f"12 channels a GPU, batch {batch}: {seconds * 1e6:.1f} us a slice"
    figures.add("sampler_8x8_slices_per_s", 1.0 / seconds, beside)
    figures.add("sampler_over_noise", seconds / noise, f"drawing the same uniforms: {noise * 1e6:.2f} us a slice")
    beside = f"uniforms, and {normals} channels of them as normals: {drawn * 1e6:.2f} us a slice"
    figures.add("sampler_over_normal_noise", seconds / drawn, beside)


def bench_logs(figures: Figures, *, quick: bool) -> None:
    """Reading mixed logs: speed beside a search for as many fixed texts, memory, growth with size."""
    sizes = (1, 2, 4) if quick else (25, 50, 100, 200)
    costs = measure(models.load("reference").format_files, sizes)
    size, seconds = costs.by_size[-1]
    figures.add(
        "logs_mb_per_s",
        costs.megabytes_a_second,
        f"{size:.0f} MB in {seconds:.1f} s, a twentieth of it written by the simulator",
    )
    if costs.grep_seconds:
        beside = f"grep -c -F for the same {costs.texts:,} texts: {costs.grep_seconds:.2f} s"
        figures.add("logs_over_grep", seconds / costs.grep_seconds, beside)
    figures.add("logs_peak_mb", costs.peak, f"resident; {costs.base:.0f} MB of it before the first line")
    told = ", ".join(f"{size:.0f} MB {seconds:.1f} s" for size, seconds in costs.by_size)
    figures.add("logs_growth_exponent", costs.exponent, f"time ~ size ** this; 1 is linear: {told}")


def bench_environment(figures: Figures, *, quick: bool) -> None:
    """The environment: slices of instances a second on one core, observations made, beside CartPole."""
    costs = environment_costs(quick=quick)
    model = models.load("reference", layout="8x8")
    channels = len([s for s in model.spec.signal if model.layout.count(s.entity) >= model.layout.nodes])
    noise = noise_seconds(model.layout.count("gpu"), channels, 0, 500)
    beside = f"{costs.raw_decisions:,.0f} decisions; {costs.raw_prompt:,.0f} slices if no cell is late"
    figures.add("env_raw_8x8_steps_per_s", costs.raw, beside)
    beside = f"{costs.belief_decisions:,.0f} decisions; {costs.belief_prompt:,.0f} slices if no cell is late"
    figures.add("env_belief_8x8_steps_per_s", costs.belief, beside)
    figures.add(
        "env_over_noise", 1.0 / costs.raw / noise, f"uniforms of {channels} channels a GPU: {noise * 1e6:.1f} us"
    )
    told = ", ".join(f"{layout} {seconds * 1e6:.0f} us" for layout, seconds in costs.growth.items())
    figures.add("env_growth_exponent", costs.exponent, f"cost ~ nodes ** this, over the three largest: {told}")
    figures.add("cartpole_steps_per_s", costs.cartpole, "Gymnasium's own, one instance")
    figures.add("cartpole_vector_steps_per_s", costs.cartpole_vector, "the same as its own vector")


def bench_learning(figures: Figures, *, quick: bool) -> None:
    """Training on 4x8, decisions a second: where the time goes, and other learners on the same environment."""
    layout, instances, updates = ("1x2", 4, 2) if quick else ("4x8", 64, 5)
    costs = all_costs(layout, instances=instances, updates=updates)
    for (observe, memory), cost in costs.items():
        told = ", ".join(f"{name} {100.0 * share:.0f} %" for name, share in cost.shares.items())
        figures.add(f"train_{observe}_{memory}_steps_per_s", cost.decisions, f"one core: {told}")
    for observe in ("raw", "belief"):
        together = two_processes(observe, layout, instances=instances, updates=updates + 1)
        told = f"two processes; one alone {costs[observe, 'attention'].decisions:,.0f}"
        figures.add(f"train_transformer_{observe}_steps_per_s", together, told)
    other = others("belief", layout, instances=8, length=8 if quick else 64, segments=2)
    if other.recurrent is not None and other.ppo is not None:
        mine = costs["belief", "attention"].decisions
        figures.add(
            "train_over_sb3_recurrent", mine / other.recurrent, f"RecurrentPPO: {other.recurrent:,.0f} a second"
        )
        figures.add("train_over_sb3_ppo", mine / other.ppo, f"PPO without memory: {other.ppo:,.0f} a second")


def main(argv: list[str] | None = None) -> int:
    """`python -m clusterorch.bench --out bench.json`: measure, print a table, write the figures."""
    parser = argparse.ArgumentParser(prog="clusterorch.bench", description=main.__doc__)
    parser.add_argument("--out", type=Path, default=Path("bench.json"))
    parser.add_argument("--quick", action="store_true", help="small batches and layouts, to see that it runs")
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    options = parser.parse_args(argv)
    console = Console()
    figures = Figures()
    bench_filter(figures, quick=options.quick)
    if "filter_2048x8_ms_per_slice" not in figures.figures:
        console.print("quick run: the large layouts were left out")
    bench_hmmlearn(figures)
    bench_pgmpy(figures)
    bench_sampler(figures, quick=options.quick)
    bench_logs(figures, quick=options.quick)
    bench_environment(figures, quick=options.quick)
    bench_learning(figures, quick=options.quick)
    table = Table(title="clusterorch bench: medians of CPU time on one core")
    for column in ("figure", "measured", "beside it"):
        table.add_column(column, justify="right" if column == "measured" else "left", overflow="fold")
    for row in figures.rows:
        table.add_row(*row)
    console.print(table)
    if options.out.exists() and not options.force and options.out.name != "bench.json":
        raise OutputExists(f"{options.out} exists; give --force to replace it")
    record = {
        "figures": figures.figures, "aims": AIMS, "machine": platform.machine(), "seeds": SEEDS,
        "model_sha256": models.load("reference").sha256,
        **provenance(["python", "-m", "clusterorch.bench", *(argv if argv is not None else sys.argv[1:])]),
    }  # fmt: skip
    options.out.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
