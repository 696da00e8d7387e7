"""Here lives the command line of the measurements: `python -m clusterorch.evaluation`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track

from clusterorch.errors import ClusterorchError
from clusterorch.evaluation import case_report
from clusterorch.evaluation.baselines import DEFAULT_ROWS, read_rows
from clusterorch.evaluation.cases import Bench, summary
from clusterorch.evaluation.incidents import read_incidents
from clusterorch.evaluation.journal import MOST_WORKERS, Journal, made_with, provenance

RESULTS = Path("data/results")


def run_cases(options: argparse.Namespace, console: Console) -> None:
    """Score a folder of incidents and write `incidents.jsonl`, `cases.json` and `cases.md`."""
    incidents = {incident.name: incident for incident in read_incidents(options.folder)}
    rows = read_rows(options.keywords)
    bench = Bench(rows=rows, stillness=not options.quick, priors=not options.quick)
    patterns = [[word.mode, word.pattern.pattern] for word in rows.keywords]
    made = made_with(bench.model, quick=options.quick, keywords=patterns, alone=rows.alone)
    journal = Journal(options.out / "incidents.jsonl", made, restart=options.restart)
    todo = journal.fill(incidents, lambda name: bench.score(incidents[name]), workers=options.workers)
    missing = len(incidents.keys() - journal.records.keys())
    for _ in track(todo, "incidents", total=missing, console=console, disable=not missing):
        pass
    records = [journal.records[name] for name in incidents]
    result = summary(records, bench.prior)
    result["made"] = {k: made[k] for k in ("model", "sha256", "formats_sha256")} | provenance(options.command_line)
    (options.out / "cases.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (options.out / "cases.md").write_text(case_report.markdown(result, records), encoding="utf-8")
    console.print(case_report.terminal_table(result))
    console.print(f"written to {options.out}")


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    made = argparse.ArgumentParser(prog="python -m clusterorch.evaluation", description=__doc__)
    commands = made.add_subparsers(dest="command", required=True)
    cases = commands.add_parser("cases", help="score a folder of incidents of known cause")
    cases.add_argument("--folder", type=Path, default=Path("data/cases"), help="folders with logs/ and truth.json")
    cases.add_argument("--keywords", type=Path, default=DEFAULT_ROWS, help="patterns of the keyword row")
    cases.add_argument("--quick", action="store_true", help="no retellings and no other priors")
    cases.set_defaults(run=run_cases, out=RESULTS / "cases")
    for command in (cases,):
        command.add_argument("--out", type=Path, help="folder for the results")
        command.add_argument("--workers", type=int, default=1, choices=range(1, MOST_WORKERS + 1))
        command.add_argument("--restart", action="store_true", help="forget what an earlier run has found")
    return made


def main(argv: Sequence[str] | None = None, console: Console | None = None) -> int:
    """Run a command; 2 if it cannot be done as asked."""
    given = list(sys.argv[1:] if argv is None else argv)
    options = parser().parse_args(given)
    options.command_line = ["python", "-m", "clusterorch.evaluation", *given]
    try:
        options.run(options, console or Console())
    except ClusterorchError as error:
        print(f"clusterorch.evaluation: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
