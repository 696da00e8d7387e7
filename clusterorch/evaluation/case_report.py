"""Here lives the page of a scored folder of incidents: a table for the terminal, and the same in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from clusterorch.evaluation.cases import MOST_MOVED, WHOLE
from clusterorch.evaluation.incidents import SETS
from clusterorch.evaluation.journal import Record
from clusterorch.evaluation.scores import LEAST, ranked

HEADINGS = ("row", "set", "incidents", "AC@1", "AC@1 near", "AC@3", "log score")


def cells(result: Record) -> list[list[str]]:
    """Rows of the table, as text."""
    found = []
    for name, by_set in result["table"].items():
        for kind in ("all", *SETS):
            scores = by_set[kind]
            if scores is None or (kind != "all" and name in WHOLE):
                continue
            counts = [
                f"{scores[k]} ({scores[k] / scores['incidents']:.2f})"
                for k in ("first", "first_or_near", "first_three")
            ]
            found.append([name, kind, str(scores["incidents"]), *counts, f"{scores['log_score']:.3f}"])
    return found


def terminal_table(result: Record) -> Table:
    """The table as a terminal shows it."""
    table = Table(
        title=f"{result['incidents']} incidents; log score in nats, probabilities count as {LEAST:g} at least"
    )
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in ("row", "set") else "right", no_wrap=True)
    before = None
    for row in cells(result):
        table.add_row("" if row[0] == before else row[0], *row[1:])
        before = row[0]
    return table


def markdown(result: Record, records: Sequence[Record]) -> str:
    """The whole page."""
    places, single = result["places"], result["rows_of_one_incident"]
    lines = ["# Incidents of known cause", "", *_pipe(HEADINGS, cells(result)), ""]
    lines += [
        f"Log score: mean log probability of the true mode in nats; probabilities count as {LEAST:g} at least.",
        "`AC@1 near` counts near misses as right. `prior only` reads nothing; `keywords` takes the first of fifteen",
        "patterns that matches anywhere in the logs and is certain of it; `uniform prior`, `one site` change nothing",
        "but the incident prior; `two signals` leaves out every reading of all other signals.",
        "",
        f"Places: of {places['scored']} incidents whose place is known, the first reported place names it in "
        f"{places['first']}, one of the first three in {places['first_three']};",
        f"it is never named in {_listed(places['not_named'])}.",
        "",
        "## Not first",
        "",
        *_pipe(("incident", "truth", "its probability", "said", "near miss"), [_missed(m) for m in result["missed"]]),
        "",
        "## Told otherwise",
        "",
    ]
    if result["moved_most"] is None:
        lines += ["Not measured."]
    else:
        far = [f"{what} ({x:.3f})" for what, x in result["moved_too_far"].items()]
        lines += [
            "Hosts renamed, files renamed, all clocks shifted: the posterior over modes moves by "
            f"{result['moved_most']:.4f} at most (total variation).",
            f"By {MOST_MOVED:g} or more: {_listed(far)}.",
        ]
    lines += ["", "## Pattern rows that one incident alone uses", ""]
    lines += [f"{len(single)} of the {result['rows_used']} rows that were used at all:", ""]
    lines += [f"- {row} ({key})" for row, key in single.items()]
    lines += ["", "## One by one", ""]
    shown = [_one(record) for record in records]
    lines += _pipe(
        ("incident", "set", "truth", "probability", "first", "keywords say", "rank of place", "lines not known"), shown
    )
    return "\n".join(lines) + "\n" + _footer(result)


def _missed(miss: Record) -> list[str]:
    near = "yes" if miss["near"] else "no"
    return [miss["incident"], miss["truth"], f"{miss['probability']:.3f}", miss["said"], near]


def _one(record: Record) -> list[str]:
    place = "-" if record["place"] is None else str(record["place"]["rank"] or "not named")
    leading, by_words = ranked(record["modes"])[0], ranked(record["keyword"])[0]
    probability = f"{record['modes'].get(record['truth'], 0.0):.3f}"
    unknown = f"{record['unrecognised']}/{record['lines']}"
    return [record["key"], record["set"], record["truth"], probability, leading, by_words, place, unknown]


def _footer(result: Record) -> str:
    made = result["made"]
    commit = made["commit"] or "unknown"
    return (
        f"\nMade by `{' '.join(made['command'])}` at commit {commit}, model {made['model']} {made['sha256'][:12]}, "
        f"formats {made['formats_sha256'][:12]}. Nothing here is random.\n"
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "none"


def _pipe(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(headings) + " |", "|" + " --- |" * len(headings)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]
