"""Here lives the page of the study of learning: what the arms reach, against whom, and what they take for what."""

from __future__ import annotations

from rich.table import Table

from clusterorch.evaluation import policy_report
from clusterorch.evaluation.journal import Record

_MINUTE = 60.0


def terminal_tables(result: Record) -> list[Table]:
    """The scores as a terminal shows them."""
    return policy_report.terminal_tables(result)


def markdown(result: Record) -> str:
    """The whole page."""
    made, lines = result["made"], ["# Learning with beliefs and without", ""]
    lines += ["| arm | seeds | decisions | minutes |", "| --- | --- | --- | --- |"]
    for arm, seeds in result["arms"].items():
        decisions = max(one["decisions"] for one in seeds.values())
        minutes = max(one["seconds"] for one in seeds.values()) / 60.0
        lines.append(f"| {arm} | {', '.join(seeds)} | {decisions:,} | {minutes:.0f} |")
    lines += ["", "Minutes are those of the slowest run, evaluations not counted, on one core.", ""]
    for layout, scores in result["layouts"].items():
        lines += _layout(layout, scores, result["dt"])
    lines += [
        "Kept is the surviving good training of an episode in slices of healthy training. The recovered share is",
        "(policy - wait) / (oracle - wait), a ratio of sums; its interval a bootstrap over episodes in pairs. All",
        "seeds of an arm play the same episodes, and what counts is their mean, episode by episode.",
        "",
        f"Made by `{' '.join(made['command'])}` at commit {made['commit'] or 'unknown'}, model {made['model']} "
        f"{made['sha256'][:12]}, {made['hours']:g} h an episode.",
    ]
    return "\n".join(lines) + "\n"


def _layout(layout: str, scores: Record, dt: float) -> list[str]:
    lines = policy_report.whole_table(layout, scores)
    lines += ["### Share by seed", ""]
    lines += [f"- {name}: {', '.join(f'{share:.3f}' for share in by)}" for name, by in scores["by_seed"].items()]
    others = list(next(iter(scores["against"].values())))
    lines += ["", "### More kept than, slices an episode, with 95 %", ""]
    lines += ["| arm | " + " | ".join(others) + " |", "|" + " --- |" * (len(others) + 1)]
    for name, row in scores["against"].items():
        told = (f"{one['mean']:+.1f} ({one['low']:+.1f} to {one['high']:+.1f})" for one in row.values())
        lines.append(f"| {name} | " + " | ".join(told) + " |")
    lines += ["", *policy_report.by_mode_table(scores)]
    for name, rows in scores["first_moves"].items():
        lines += ["", f"### The first move of {name}", ""]
        lines += ["| mode | episodes | before it | after it | median delay, min | taken for |", "|" + " --- |" * 6]
        for mode, row in rows.items():
            delay = "-" if row["median_delay"] is None else f"{row['median_delay'] * dt / _MINUTE:.1f}"
            taken = ", ".join(f"{stated} {count}" for stated, count in list(row["taken_for"].items())[:3])
            lines.append(
                f"| {mode} | {row['episodes']} | {row['before']} | {row['acted']} | {delay} | {taken or '-'} |"
            )
    return [*lines, ""]
