"""Here lives the command line of the measurements: `python -m clusterorch.evaluation`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import track

from clusterorch.environment.episodes import OBSERVE
from clusterorch.errors import ClusterorchError
from clusterorch.evaluation import (
    agent_cards,
    case_report,
    excerpt_report,
    excerpts,
    policy_report,
    policy_scores,
    round_trip,
    round_trip_report,
)
from clusterorch.evaluation.baselines import DEFAULT_ROWS, read_rows
from clusterorch.evaluation.cases import Bench, summary
from clusterorch.evaluation.excerpts import Excerpting
from clusterorch.evaluation.incidents import read_incidents
from clusterorch.evaluation.journal import MOST_WORKERS, Journal, Record, made_with, provenance
from clusterorch.evaluation.round_trip import RoundTrip
from clusterorch.models import load
from clusterorch.policies.running import POLICIES

RESULTS = Path("data/results")


def run_cases(options: argparse.Namespace, console: Console) -> None:
    """Score a folder of incidents and write `incidents.jsonl`, `cases.json` and `cases.md`."""
    incidents = {incident.name: incident for incident in read_incidents(options.folder)}
    rows = read_rows(options.keywords)
    bench = Bench(rows=rows, stillness=not options.quick, priors=not options.quick)
    patterns = [[word.mode, word.pattern.pattern] for word in rows.keywords]
    made = made_with(bench.model, quick=options.quick, keywords=patterns, alone=rows.alone)
    journal = Journal(options.out / "incidents.jsonl", made, restart=options.restart)
    _fill(journal, list(incidents), lambda name: bench.score(incidents[name]), options.workers, console)
    records = [journal.records[name] for name in incidents]
    result = summary(records, bench.prior)
    result["made"] = {k: made[k] for k in ("model", "sha256", "formats_sha256")} | provenance(options.command_line)
    _keep(options.out / "cases", result, case_report.markdown(result, records))
    console.print(case_report.terminal_table(result))
    console.print(f"written to {options.out}")


def run_round_trip(options: argparse.Namespace, console: Console) -> None:
    """Simulate, write, read and diagnose incidents; write `incidents.jsonl`, `round_trip.json` and `round_trip.md`."""
    trips = RoundTrip(seed=options.seed, skew=options.skew)
    made = made_with(trips.reader, seed=options.seed, skew=options.skew)
    journal = Journal(options.out / "incidents.jsonl", made, restart=options.restart)
    wanted = list(round_trip.keys(options.incidents))
    _fill(journal, wanted, trips.run, options.workers, console)
    result = round_trip.summary([journal.records[key] for key in wanted])
    result["made"] = made | provenance(options.command_line)
    _keep(options.out / "round_trip", result, round_trip_report.markdown(result))
    console.print(round_trip_report.terminal_table(result))
    console.print(f"written to {options.out}")


def run_excerpts(options: argparse.Namespace, console: Console) -> None:
    """Paste, print, read and diagnose excerpts; write `excerpts.jsonl`, `excerpts.json` and `excerpts.md`."""
    made_of = Excerpting(seed=options.seed)
    made = made_with(made_of.reader, seed=options.seed)
    journal = Journal(options.out / "excerpts.jsonl", made, restart=options.restart)
    wanted = list(round_trip.keys(options.incidents))
    _fill(journal, wanted, made_of.run, options.workers, console)
    result = excerpts.summary([journal.records[key] for key in wanted])
    result["made"] = made | provenance(options.command_line)
    _keep(options.out / "excerpts", result, excerpt_report.markdown(result))
    console.print(excerpt_report.terminal_table(result))
    console.print(f"written to {options.out}")


def run_policies(options: argparse.Namespace, console: Console) -> None:
    """Play paired episodes under every policy; write `episodes.jsonl`, `policies.json` and `policies.md`."""
    chosen = {"hours": options.hours, "profile": options.profile, "seed": options.seed}
    made = made_with(load("reference", overlays=["episode"]), **chosen)
    journal = Journal(options.out / "episodes.jsonl", made, restart=options.restart)
    agents = policy_scores.agents_of(options.agents) if options.agents else {}
    policies = ["wait", *(p for p in options.policies if p not in ("wait", "oracle")), *agents, "oracle"]
    wanted = policy_scores.keys(options.layouts, policies, options.episodes)
    _fill(journal, wanted, lambda key: policy_scores.play(key, **chosen, agents=agents), options.workers, console)
    result = policy_scores.summary([journal.records[key] for key in wanted], options.layouts, policies)
    result["made"] = made | provenance(options.command_line)
    _keep(options.out / "policies", result, policy_report.markdown(result))
    for folder in options.agents if options.cards else []:
        names = [name for name, (where, _) in agents.items() if where == folder]
        (folder / "README.md").write_text(agent_cards.card(folder, names, result), encoding="utf-8")
    for table in policy_report.terminal_tables(result):
        console.print(table)
    console.print(f"written to {options.out}")


def run_learning(options: argparse.Namespace, console: Console) -> None:
    """Train every arm with every seed and play its agents; write `runs.jsonl`, `learning.json` and `learning.md`."""
    from clusterorch.evaluation import learning_report, learning_study
    from clusterorch.learning.training import Run

    told = json.loads(options.run_file.read_text(encoding="utf-8")) if options.run_file else {}
    given = {name: getattr(options, name) for name in ("steps", "instances", "layouts") if getattr(options, name)}
    run = Run.parse(told.get("run", told) | given)
    model = load("reference", overlays=["episode"])
    kept = {key: value for key, value in asdict(run).items() if key not in ("observe", "seed")}
    made = made_with(model, hours=run.hours, episodes=options.episodes, run=kept)
    journal = Journal(options.out / "runs.jsonl", made, restart=options.restart)
    study = learning_study.Study(run, options.episodes, options.work)
    wanted = learning_study.keys(options.arms, options.seeds, POLICIES, run.layouts)
    if any(key not in journal.records for key in wanted):
        study.prepare()
    _fill(journal, wanted, study.do, options.workers, console)
    result = learning_study.summary(journal.records, run, options.arms, options.seeds, POLICIES)
    result["made"], result["dt"] = made | provenance(options.command_line), model.spec.model.slice_seconds
    _keep(options.out / "learning", result, learning_report.markdown(result))
    for table in learning_report.terminal_tables(result):
        console.print(table)
    console.print(f"written to {options.out}")


def _fill(
    journal: Journal, wanted: Sequence[str], work: Callable[[str], Record], workers: int, console: Console
) -> None:
    missing = len([key for key in wanted if key not in journal.records])
    todo = journal.fill(wanted, work, workers=workers)
    for _ in track(todo, "incidents", total=missing, console=console, disable=not missing):
        pass


def _keep(file: Path, result: Record, page: str) -> None:
    file.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    file.with_suffix(".md").write_text(page, encoding="utf-8")


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    made = argparse.ArgumentParser(prog="python -m clusterorch.evaluation", description=__doc__)
    commands = made.add_subparsers(dest="command", required=True)
    cases = commands.add_parser("cases", help="score a folder of incidents of known cause")
    cases.add_argument("--folder", type=Path, default=Path("data/cases"), help="folders with logs/ and truth.json")
    cases.add_argument("--keywords", type=Path, default=DEFAULT_ROWS, help="patterns of the keyword row")
    cases.add_argument("--quick", action="store_true", help="no retellings and no other priors")
    cases.set_defaults(run=run_cases, out=RESULTS / "cases")
    trips = commands.add_parser("round-trip", help="simulate incidents, write their logs, read them and diagnose")
    trips.add_argument("--incidents", type=int, default=1000, help="how many, from number 0 on")
    trips.add_argument("--seed", type=int, default=0)
    trips.add_argument("--skew", type=float, default=round_trip.WRONG_CLOCKS, help="wrong clocks of hosts, seconds")
    trips.set_defaults(run=run_round_trip, out=RESULTS / "round_trip")
    pasted = commands.add_parser("excerpts", help="paste lines of simulated incidents, and see how calibrated it is")
    pasted.add_argument("--incidents", type=int, default=1000, help="how many, from number 0 on")
    pasted.add_argument("--seed", type=int, default=0)
    pasted.set_defaults(run=run_excerpts, out=RESULTS / "excerpts")
    played = commands.add_parser("policies", help="play paired episodes under the baseline policies, and agents")
    played.add_argument("--episodes", type=int, default=1000, help="how many, from number 0 on")
    played.add_argument("--layouts", nargs="+", default=["1x8", "4x8"], help="clusters, NODESxGPUS")
    played.add_argument("--policies", nargs="+", default=list(POLICIES), help="names, or runbook files")
    played.add_argument("--hours", type=float, default=4.0, help="of an episode")
    played.add_argument("--profile", help="site profile")
    played.add_argument("--seed", type=int, default=0)
    played.add_argument("--agents", nargs="+", type=Path, default=[], help="folders of trained agents, to play too")
    played.add_argument("--cards", action="store_true", help="write what they reach into their README.md")
    played.set_defaults(run=run_policies, out=RESULTS / "policies")
    learnt = commands.add_parser("learning", help="train with every kind of observation, and compare")
    learnt.add_argument("--arms", nargs="+", default=["raw", "belief", "both"], choices=[*OBSERVE, "prior"])
    learnt.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    learnt.add_argument(
        "--run-file", type=Path, help="a run, or config.json of an agent; --steps and others count more"
    )
    learnt.add_argument("--steps", type=int, help="decisions of a run")
    learnt.add_argument("--instances", type=int, help="played at once, on each layout")
    learnt.add_argument("--layouts", nargs="+", help="clusters, NODESxGPUS")
    learnt.add_argument("--episodes", type=int, default=256, help="paired episodes at the end, on each layout")
    learnt.add_argument("--work", type=Path, default=Path("build/learning"), help="folder for the runs")
    learnt.set_defaults(run=run_learning, out=RESULTS / "learning")
    for command in (cases, trips, pasted, played, learnt):
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
