"""Here lives the page of the policies: one row a policy, by layout, then by mode."""

from __future__ import annotations

from rich.table import Table

from clusterorch.evaluation.journal import Record

HEADINGS = (
    "policy", "kept", "recovered share", "95 %", "moves", "false", "discarded", "down", "poisoned", "given up",
    "understood",
)  # fmt: skip


_SHORT = ("policy", "kept", "recovered share", "95 %", "moves", "false")  # what fits a terminal


def cells(scores: Record) -> list[list[str]]:
    """Rows of the table, as text."""
    found = []
    for policy, row in sorted(scores["rows"].items(), key=lambda item: item[1]["kept"]):
        understood = "-" if row["understood"] is None else f"{row['understood']:.2f}"
        found.append(
            [
                policy, f"{row['kept']:.1f}", f"{row['share']:.3f}", f"{row['low']:.3f} to {row['high']:.3f}",
                f"{row['moves']:.2f}", f"{row['false_moves']:.2f}", f"{row['rolled_back']:.1f}", f"{row['down']:.1f}",
                f"{row['poisoned']:.1f}", f"{row['lost']:.3f}", understood,
            ]
        )  # fmt: skip
    return found


def terminal_tables(result: Record) -> list[Table]:
    """The tables as a terminal shows them."""
    tables = []
    for layout, scores in result["layouts"].items():
        table = Table(title=f"{layout}: {scores['episodes']} paired episodes, {scores['empty']} without a failure")
        for heading in _SHORT:
            table.add_column(heading, justify="left" if heading == "policy" else "right", no_wrap=True)
        for row in cells(scores):
            table.add_row(*(row[HEADINGS.index(heading)] for heading in _SHORT))
        tables.append(table)
    return tables


def whole_table(layout: str, scores: Record) -> list[str]:
    """Lines of a layout's heading and of its table, one row a policy."""
    return [
        f"## Layout {layout}", "", "| " + " | ".join(HEADINGS) + " |", "|" + " --- |" * len(HEADINGS),
        *("| " + " | ".join(row) + " |" for row in cells(scores)), "",
        f"{scores['episodes']} paired episodes, {scores['empty']} without a failure.", "",
    ]  # fmt: skip


def by_mode_table(scores: Record) -> list[str]:
    """Lines of a layout's shares, one row a mode of the first failure."""
    names = list(scores["rows"])
    lines = ["### Share by mode of the first failure", ""]
    lines += ["| mode | episodes | head-room | " + " | ".join(names) + " |", "|" + " --- |" * (len(names) + 3)]
    for mode, row in scores["by_mode"].items():
        shares = " | ".join(f"{row['share'][name]:.2f}" for name in names)
        lines.append(f"| {mode} | {row['episodes']} | {row['head_room']:.1f} | {shares} |")
    return lines


def markdown(result: Record) -> str:
    """The whole page."""
    made, lines = result["made"], ["# Policies over paired episodes", ""]
    for layout, scores in result["layouts"].items():
        lines += [*whole_table(layout, scores), *by_mode_table(scores)]
        names = list(scores["rows"])
        lines += ["", "### Gap to the oracle by variant, slices", ""]
        lines += ["| variant | episodes | " + " | ".join(names) + " |", "|" + " --- |" * (len(names) + 2)]
        for variant, row in scores["by_variant"].items():
            gaps = " | ".join(f"{row['gap'][name]:.1f}" for name in names)
            lines.append(f"| {variant} | {row['episodes']} | {gaps} |")
        lines += ["", "### Paired episodes that tell neighbours apart at 80 % power", ""]
        lines += [f"- {pair}: {count if count is not None else 'the same'}" for pair, count in scores["needed"].items()]
        lines.append("")
    lines += [
        "Kept is the surviving good training of an episode in slices of healthy training. The recovered share is",
        "(policy - wait) / (oracle - wait), a ratio of sums; its interval a bootstrap over episodes in pairs.",
        "",
        f"Made by `{' '.join(made['command'])}` at commit {made['commit'] or 'unknown'}, model {made['model']} "
        f"{made['sha256'][:12]}, {made['hours']:g} h an episode, profile {made['profile'] or 'none'}, "
        f"seed {made['seed']}.",
    ]
    return "\n".join(lines) + "\n"
