"""Here lives the page of the calibration of excerpts."""

from __future__ import annotations

from rich.table import Table

from clusterorch.evaluation.journal import Record

_ROWS = {
    "ac1": "AC@1", "log_score": "mean log score", "entropy": "mean entropy of the posterior",
    "score_off_entropy": "log score off entropy", "top_label_error": "calibration error, top label",
    "top_label_error_if_right": "the same if right", "classwise_error": "calibration error, classwise",
    "classwise_error_if_right": "the same if right",
}  # fmt: skip
_MODES = ("mode", "excerpts", "AC@1 logs", "AC@1 marks", "log score logs", "log score marks", "apart")


def cells(result: Record) -> list[list[str]]:
    """Rows of the table, as text: a score, from the logs, from what was pasted."""
    both = result["rows"]
    return [[title, f"{both['logs'][key]:.3f}", f"{both['marks'][key]:.3f}"] for key, title in _ROWS.items()]


def terminal_table(result: Record) -> Table:
    """The table as a terminal shows it."""
    table = Table(
        "", "logs", "marks", title=f"{result['excerpts']} excerpts of known cause, {result['apart']:.3f} apart"
    )
    for row in cells(result):
        table.add_row(*row)
    return table


def markdown(result: Record) -> str:
    """The whole page."""
    made, aims = result["made"], result["aims"]
    lines = ["# Excerpts", "", "|  | logs | marks |", "| --- | --- | --- |"]
    lines += ["| " + " | ".join(row) + " |" for row in cells(result)]
    lines += [
        "",
        "Causes are drawn from the incident prior, lines are pasted by the law of the protocol `excerpt`, printed,",
        "read and diagnosed: `logs`. `marks` is the filter on what was pasted itself, on the layout of the episode.",
        f"The total variation between the two is {result['apart']:.3f} on average. `if right`: the same posteriors",
        "with causes drawn from themselves, which is the error that so few excerpts leave by chance.",
        "",
        f"Aims: calibration errors {aims['calibration_error']:g}, the log score within",
        f"{aims['score_off_entropy']:.0%} of the entropy.",
        "",
        "| " + " | ".join(_MODES) + " |",
        "|" + " --- |" * len(_MODES),
        *("| " + " | ".join(_of_mode(mode, one)) + " |" for mode, one in result["by_mode"].items()),
        "",
        f"Pasted and not read: {_told(result['not_read'])}. Read besides: {_told(result['read_besides'])}.",
        "",
        f"Layout {result['layout']}, seed {made['seed']}. Made by `{' '.join(made['command'])}` at commit",
        f"{made['commit'] or 'unknown'}, model {made['model']} {made['sha256'][:12]}, formats "
        f"{made['formats_sha256'][:12]}.",
    ]
    return "\n".join(lines) + "\n"


def _of_mode(mode: str, one: Record) -> list[str]:
    scores = [f"{one[row][key]:.3f}" for key in ("ac1", "log_score") for row in ("logs", "marks")]
    return [mode, str(one["excerpts"]), *scores, f"{one['apart']:.3f}"]


def _told(tally: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in tally.items()) or "nothing"
