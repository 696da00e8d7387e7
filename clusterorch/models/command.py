"""Here live the model commands: what a file declares, whether it holds, and where its numbers come from."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from clusterorch.causal.graph import delay_text
from clusterorch.errors import ClusterorchError
from clusterorch.models import Layout, Model, load
from clusterorch.models.checks import check, count_configurations
from clusterorch.models.effects import CLEARS, HARMFUL, USELESS, Effect, effects
from clusterorch.models.provenance import check_overlay, numbers, summary
from clusterorch.models.reading import locate, locate_overlay, read, read_whole
from clusterorch.models.spec import ModelSpec

COLUMNS = 100
_HOURS_PER_1000_NODE_DAYS = 24_000.0
_RIGHT = ("configurations", "transitions", "severities", "share", "/1000 node-days", "gate", "clears")


def check_command(
    files: Sequence[str | Path] = ("reference",),
    overlays: Sequence[str | Path] = (),
    *,
    console: Console | None = None,
) -> bool:
    """Check model files, each with the overlays, and print what a variant costs; False if one does not hold.

    Args:
        files: names or paths of models.
        overlays: names or paths, applied in order to each of them.
        console: where to print.
    """
    out = console or _console()
    sound = True
    for file in files:
        try:
            _check_one(file, overlays, out)
        except ClusterorchError as error:
            out.print(f"[red]error[/] {escape(str(error))}", soft_wrap=True)
            sound = False
    return sound


def _check_one(name: str | Path, overlays: Sequence[str | Path], out: Console) -> None:
    path, found = locate(name), [locate_overlay(overlay) for overlay in overlays]
    spec, raw = read(path, found)
    file = " + ".join(str(p) for p in (path, *found))
    warnings = check(spec, raw, file, thorough=True)
    for overlay in found:
        check_overlay(read_whole(overlay), raw, str(overlay))
    table = _table("variant", "site", "severities", "configurations", "transitions")
    variants = {v.name: v for v in _variants(spec)}
    for variant, chain in count_configurations(spec, file).items():
        pairs = {(before, after) for rows in chain.tables for before, after, _ in rows}
        levels = 3 if variants[variant].severity else 1
        counts = (levels, len(chain.configurations), len(pairs))
        table.add_row(variant, variants[variant].site, *(str(count) for count in counts))
    out.print(table)
    for warning in warnings:
        out.print(f"[yellow]warning[/] {escape(warning)}", soft_wrap=True)
    out.print(f"[green]ok[/] {escape(file)}: {summary(numbers(raw, file))}", soft_wrap=True)


def show_command(
    name: str | Path = "reference",
    overlays: Sequence[str | Path] = (),
    layout: str | Layout = "4x8",
    *,
    console: Console | None = None,
) -> Model:
    """Print what a model declares; gives the model, for a picture of its graph.

    Raises:
        UnknownModel: no such model or overlay.
        InvalidModel: the model does not hold.
        InvalidLayout: not a layout.
    """
    out = console or _console()
    model = load(name, layout=layout, overlays=overlays)
    spec = model.spec
    out.print(
        f"[bold]{spec.model.name}[/] version {spec.model.version}: {escape(spec.model.summary)}",
        soft_wrap=True,
    )
    out.print(
        f"slice {spec.model.slice_seconds:g} s, layout {model.layout}, prior {spec.prior.kind}, "
        f"fingerprint {model.sha256[:12]}\n"
    )
    out.print(_modes(model), _mechanisms(spec), _edges(spec))
    for stream in spec.stream:
        out.print(_signals(spec, stream.name, stream.title))
    out.print(_actions(spec))
    return model


def sources_command(
    name: str | Path = "reference", overlays: Sequence[str | Path] = (), *, console: Console | None = None
) -> None:
    """Print where every number of a model comes from.

    Raises:
        UnknownModel: no such model or overlay.
        InvalidModel: a number has no origin.
    """
    out = console or _console()
    model = load(name, overlays=overlays)
    origins = numbers(model.raw, str(model.path))
    order = list(dict.fromkeys(origin.table for origin in origins))
    for group, members in groupby(sorted(origins, key=lambda o: order.index(o.table)), key=lambda o: o.table):
        table = _table("key", "value", "status", "source, or reason", title=group)
        table.columns[1].no_wrap, table.columns[1].max_width, table.columns[3].min_width = False, 18, 32
        for origin in members:
            colour = {"sourced": "green", "derived": "cyan"}.get(origin.status, "yellow")
            value = f"{_number(origin.value)} {origin.unit_hint}".strip()
            table.add_row(escape(_within(origin.key)), value, f"[{colour}]{origin.status}[/]", escape(origin.text))
        out.print(table)
    out.print(f"{summary(origins)}; a list counts as one")


def actions_command(
    name: str | Path = "reference", overlays: Sequence[str | Path] = (), *, console: Console | None = None
) -> None:
    """Print what each action does to each failure, aimed as well as it can be.

    Raises:
        InvalidModel, UnknownModel: the file is broken, or there is none.
    """
    model, out = load(name, overlays=list(overlays)), console or _console()
    found = effects(model.spec)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), show_edge=False)
    table.add_column("failure", no_wrap=True, vertical="bottom")
    for action in next(iter(found.values())):
        table.add_column(action.replace("_", "\n"), justify="right", min_width=max(map(len, action.split("_"))))
    before = None
    for name_of_failure, row in found.items():
        mode, variant = name_of_failure.split(".")
        if mode != before:
            table.add_row(f"[bold]{mode}[/]")
        before = mode
        table.add_row(f"  {variant}", *(_effect_cell(effect) for effect in row.values()))
    out.print(table)
    out.print("per cent: the chance that it ends; [green]clears[/] with half or more, [yellow]mitigates[/] with less")
    out.print("[dim]-[/] useless: costs time at most; [red]x[/] harmful: throws away work or capacity for nothing")


def _effect_cell(effect: Effect) -> str:
    marks = {USELESS: "[dim]-[/]", HARMFUL: "[red]x[/]"}
    colour = "green" if effect.word == CLEARS else "yellow"
    return marks.get(effect.word, f"[{colour}]{100 * effect.probability:.0f}[/]")


def _console() -> Console:
    console = Console()
    return Console(width=min(COLUMNS, console.width) if console.is_terminal else COLUMNS)


def _table(*columns: str, title: str | None = None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for index, column in enumerate(columns):
        justify = "right" if column in _RIGHT else "left"
        table.add_column(column, justify=justify, overflow="fold", no_wrap=index == 0 and column != "key")
    return table


def _variants(spec: ModelSpec) -> list[Any]:
    """Declared variants under their full names, benign ones last."""
    named = [(f"{mode.name}.{variant.name}", variant) for mode in spec.mode for variant in mode.variant]
    named += [(f"healthy.{benign.name}", benign) for benign in spec.benign]
    return [variant.model_copy(update={"name": name}) for name, variant in named]


def _within(key: str) -> str:
    """A key without the name of its top-level table, with spaces where a line may break."""
    name = key.partition("(")[2].replace(")", "", 1) if "(" in key else key.partition(".")[2]
    return name.replace(">", " > ").replace("].", "] ")


def _number(value: Any) -> str:
    return ", ".join(map(_number, value)) if isinstance(value, tuple) else f"{value:g}"


def _often(rate: float, nodes: int) -> str:
    """Mean time between starts on all nodes."""
    if rate <= 0.0:
        return "never"
    hours = _HOURS_PER_1000_NODE_DAYS / (rate * nodes)
    return f"{hours:.3g} h" if hours < 48.0 else f"{hours / 24.0:,.0f} d"


def _modes(model: Model) -> Table:
    title = f"Failure modes and disturbances; how often on {model.layout}"
    table = _table("mode, variant", "what happens", "site", "/1000 node-days", "share", "one in", title=title)
    for mode in model.spec.mode:
        rate, nodes = mode.rate_per_1000_node_days, model.layout.nodes
        table.add_row(
            f"[bold]{mode.name}[/]", f"[bold]{escape(mode.title)}[/] ({mode.category})", "", f"{rate:g}", "",
            _often(rate, nodes),
        )  # fmt: skip
        for v in mode.variant:
            own = (f"{rate * v.share:.3g}", f"{v.share:.0%}", _often(rate * v.share, nodes))
            table.add_row(f"  {v.name}", escape(v.title), v.site, *own)
        table.add_section()
    for benign in model.spec.benign:
        rate = benign.rate_per_1000_node_days
        own = (f"{rate:g}", "", _often(rate, model.layout.nodes))
        table.add_row(f"healthy.{benign.name}", escape(benign.title), benign.site, *own)
    return table


def _mechanisms(spec: ModelSpec) -> Table:
    table = _table("mechanism", "meaning", "effect on the job", "lasts", title="Mechanisms")
    for m in spec.mechanism:
        slowdown = m.slowdown if isinstance(m.slowdown, list) else [m.slowdown]
        effect = "" if m.effect == "none" else m.effect
        if m.effect == "slow":
            effect += " x" + "/".join(f"{factor:g}" for factor in slowdown)
        lasts = f"{m.heals:g} s" if m.heals else "until the fault ends"
        lasts = "transient" if m.transient else "one slice" if m.pulse else lasts
        table.add_row(m.name, escape(m.title), effect, lasts)
    return table


def _edges(spec: ModelSpec) -> Table:
    table = _table("cause", "mechanism", "gate", "delay", title="Causes")
    for cause, edges in groupby(sorted(spec.edge, key=_cause_order(spec)), key=lambda e: e.from_):
        for index, edge in enumerate(edges):
            delay = delay_text(spec, edge)[0]
            if edge.phases is not None:
                delay += f", only in {', '.join(edge.phases)}"
            table.add_row("" if index else cause, edge.to, "" if edge.gate == 1.0 else f"{edge.gate:g}", delay)
    return table


def _cause_order(spec: ModelSpec) -> Any:
    order = {name: i for i, name in enumerate([*(v.name for v in _variants(spec)), *(m.name for m in spec.mechanism)])}
    return lambda edge: order[edge.from_]


def _signals(spec: ModelSpec, stream: str, title: str) -> Table:
    table = _table("signal", "meaning", "entity", "family", "told by", title=f"Signals of {stream}: {title}")
    for signal in (s for s in spec.signal if s.stream == stream):
        causes = dict.fromkeys(name for rule in signal.when for name in rule.needs)
        job = dict.fromkeys(f"job {rule.job}" for rule in signal.when if rule.job)
        phases = ["phase"] if any(rule.phases for rule in signal.when) else []
        told = ", ".join([*causes, *job, *phases])
        table.add_row(signal.name, escape(signal.title), signal.entity, signal.family, told)
    return table


def _actions(spec: ModelSpec) -> Table:
    table = _table("action", "meaning", "target", "clears", "of", "where", title="Actions")
    table.columns[4].no_wrap = True
    for action in spec.action:
        first = (action.name, escape(action.title) + (" (restart)" if action.restarts else ""), action.target)
        for effect in action.effect:
            where = {"site": "at the site", "elsewhere": "elsewhere", "any": "anywhere"}[effect.relation]
            table.add_row(*first, f"{effect.clears:g}", "\n".join(effect.of), where)
            first = ("", "", "")
        if not action.effect:
            table.add_row(*first, "", "", "")
    return table
