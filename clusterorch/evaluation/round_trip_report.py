"""Here lives the page of the round trips: one row a mode."""

from __future__ import annotations

from rich.table import Table

from clusterorch.evaluation.journal import Record

HEADINGS = (
    "mode", "incidents", "apart", "median", "over 0.02", "AC@1 logs", "AC@1 values", "AC@1 whole", "log score logs",
    "log score values",
)  # fmt: skip
_COLUMNS = (
    "incidents", "apart", "apart_median", "apart_over_aim", "ac1_logs", "ac1_values", "ac1_whole", "log_score_logs",
    "log_score_values",
)  # fmt: skip


def cells(result: Record) -> list[list[str]]:
    """Rows of the table, as text."""
    return [[name, *(_shown(scores[key]) for key in _COLUMNS)] for name, scores in result["scores"].items()]


def _shown(x: float) -> str:
    return str(x) if isinstance(x, int) else f"{x:.3f}"


def terminal_table(result: Record) -> Table:
    """The table as a terminal shows it."""
    table = Table(title=f"{result['incidents']} incidents written, read back and diagnosed")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "mode" else "right")
    for row in cells(result):
        table.add_row(*row)
    return table


def markdown(result: Record) -> str:
    """The whole page."""
    made, aims = result["made"], result["aims"]
    lines = ["# Round trips", "", "| " + " | ".join(HEADINGS) + " |", "|" + " --- |" * len(HEADINGS)]
    lines += ["| " + " | ".join(row) + " |" for row in cells(result)]
    lines += [
        "",
        "Incidents of known cause are simulated, their logs are written whole (protocol complete), read back and",
        "diagnosed. `logs` is that diagnosis. `values` is the filter on the simulated values themselves, on the same",
        "site universe with the same prior; `whole` the same on the layout of the episode. `apart` is the total",
        "variation between the posteriors over modes of `logs` and `values`.",
        "",
        f"Aims: apart {aims['apart']:g} on average, AC@1 of logs at most {aims['ac1_lost']:g} below that from values.",
        "",
        f"## More than {result['listed_from']:g} apart",
        "",
        *(f"- {r['key']}: {r['variant']} on {r['layout']}, {r['apart']:.3f}" for r in result["far"]),
        "",
        f"{result['slices']} slices each, layouts {', '.join(result['layouts'])}, clocks wrong by up to "
        f"{made['skew']:g} s, seed {made['seed']}.",
        f"Made by `{' '.join(made['command'])}` at commit {made['commit'] or 'unknown'}, model {made['model']} "
        f"{made['sha256'][:12]}, formats {made['formats_sha256'][:12]}.",
    ]
    return "\n".join(lines) + "\n"
