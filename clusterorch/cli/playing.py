"""Here lives `play`: one policy, one episode, watched as it goes; what it needs is imported when it runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clusterorch.cli.of_agents import agent_folder, check_learning, is_agent
from clusterorch.cli.of_episodes import OfEpisode
from clusterorch.cli.writing import refuse_to_replace, write_whole
from clusterorch.errors import ClusterorchError

if TYPE_CHECKING:
    from clusterorch.environment.episodes import Episodes
    from clusterorch.environment.recorder import TraceRecorder
    from clusterorch.environment.rendering import Renderer
    from clusterorch.policies.view import Policy
    from clusterorch.reports.played import Stated
    from clusterorch.reports.wording import Terminal

_WIDTH = 80
_SUFFIX = ".png"


@dataclass(kw_only=True)
class Play(OfEpisode):
    """Play one episode of the environment under a policy, and tell what it was worth."""

    policy: str
    """Name of a policy or of an agent that ships, a runbook file, or the folder of an agent."""
    sampled: bool = False
    """Draw the moves of an agent from its policy, in place of the likeliest."""
    live: bool = False
    """Watch the timeline as it goes."""
    fps: float = 10.0
    """Decisions a second on a terminal with --live; 0: as fast as they come."""
    truth: bool = False
    """Show the truth in views too."""
    picture: Path | None = None
    """Write the racks at the end as a picture, .png."""
    out: Path | None = None
    """Keep the trace in this folder."""
    force: bool = False
    """Replace what is there."""

    def run(self) -> None:
        """Play, write, and print."""
        self._check()
        import numpy as np

        from clusterorch.environment.recorder import TraceRecorder
        from clusterorch.environment.rendering import Renderer
        from clusterorch.reports.played import Played, show_played
        from clusterorch.reports.wording import printable, terminal

        player = _player(self.policy, sampled=self.sampled)
        console = terminal()
        console.width = min(console.width, _WIDTH)
        # Views tell what is believed; what is played does not hang on whether a belief is kept.
        shown = self.live or self.picture is not None
        observe = "both" if shown and player.observes != "truth" else player.observes
        episodes = self.episodes(observe=observe, privileged=self.truth)
        policy, name = player.make(episodes, self.seed), player.name
        recorder = TraceRecorder(episodes) if self.out is not None else None
        title = f"{printable(name)} on {self.layout}, episode {self.episode} of seed {self.seed}"
        renderer = Renderer(episodes, 0, title) if shown else None
        moves: list[Stated] = []
        episodes.begin(np.array([0]), np.array([self.episode]))
        healthy = _healthy(episodes)
        with _watching(console, episodes, renderer if self.live else None, title, self.fps) as tell:
            for made in _decisions(episodes, policy, recorder):
                moves += made
                tell()
        if recorder is not None and self.out is not None:
            recorder.save(self.out, force=self.force)
        if renderer is not None and self.picture is not None:
            write_whole(self.picture, renderer.save, force=self.force)
        console.print(title, style="bold")
        told = episodes.incident(0)
        seconds = float(episodes.world.network.spec.model.slice_seconds)
        show_played(Played(name, told, healthy, seconds, moves), console)

    def _check(self) -> None:
        """What can be refused before anything is played."""
        if self.episode < 0:
            raise ClusterorchError(f"--episode {self.episode}: give 0 or more")
        if not 0.0 <= self.fps <= 1000.0:
            raise ClusterorchError(f"--fps {self.fps:g}: give 0..1000")
        if self.picture is not None:
            if self.picture.suffix.lower() != _SUFFIX:
                raise ClusterorchError(f"{self.picture}: a picture of the racks is written as {_SUFFIX}")
            refuse_to_replace(self.picture, force=self.force)
            from clusterorch.environment.rendering import check_drawing

            check_drawing()
        if self.out is not None:
            from clusterorch.environment.tables import refuse

            refuse(self.out, force=self.force)


class _Player(NamedTuple):
    """Who plays: what is to be shown, how it is made for episodes and a seed, and what it is called."""

    observes: str
    make: Callable[[Episodes, int], Policy]
    name: str


def _player(policy: str, *, sampled: bool) -> _Player:
    """A policy by its name, a runbook, or an agent; what is none is refused before minutes are spent."""
    from clusterorch.policies.running import POLICIES, observes, policy_named

    if is_agent(policy):
        check_learning()
        from clusterorch.learning.playing import agent_name, agent_observes, agent_policy

        folder = agent_folder(policy)
        return _Player(
            agent_observes(folder),
            lambda episodes, seed: agent_policy(folder, episodes, sampled=sampled, seed=seed),
            agent_name(folder),
        )
    if sampled:
        raise ClusterorchError(f"--sampled draws from the policy of an agent, and {policy!r} is not the folder of one")
    if policy not in POLICIES and not policy.endswith(".toml"):
        policy_named(policy, None)  # type: ignore[arg-type]  # says what there is
    name = Path(policy).stem if policy.endswith(".toml") else policy
    return _Player(observes(policy), lambda episodes, seed: policy_named(policy, episodes, seed), name)


def _decisions(episodes: Episodes, policy: Policy, recorder: TraceRecorder | None) -> Iterator[list[Stated]]:
    """Play the episode that has begun; after every decision the move that was made, if one was."""
    import numpy as np

    from clusterorch.environment.truth import privileged_info
    from clusterorch.models.ground import HEALTHY
    from clusterorch.policies.view import view_of
    from clusterorch.reports.played import Stated

    everyone, ended = np.array([True]), False
    while not ended:
        view = view_of(episodes, truth=policy.needs == "truth")
        choice = policy.decide(view)
        move, mode, node = int(choice.moves[0]), choice.modes[0], int(choice.nodes[0])
        fault = privileged_info(episodes, 0)["fault"]
        if recorder is not None:
            recorder.state_diagnosis(mode, node)
        decision = episodes.decide(choice.moves, everyone)
        ended = bool(decision.ended[0])
        if move == 0:
            yield []
            continue
        label, legal = episodes.world.moves.label(move), not decision.illegal[0]
        true_mode = fault["mode"] or HEALTHY
        yield [Stated(int(view.time[0]), label, legal, mode, node, true_mode, fault["node"])]


def _healthy(episodes: Episodes) -> float:
    """Slices that the same job trains without failures: it steps and saves in turn, from the age of its first copy."""
    from clusterorch.models.spec import PHASES

    cycle = episodes.every + int(episodes.world.simulator.plan.duration[PHASES.index("save")])
    age = -int(episodes.world.books.copy_time[0, 0])
    return float(sum((age + t) % cycle < episodes.every for t in range(episodes.horizon)))


@contextlib.contextmanager
def _watching(
    console: Terminal, episodes: Episodes, renderer: Renderer | None, title: str, fps: float
) -> Iterator[Any]:
    """What is called after every decision: a bar of progress, or the view in its place with a renderer."""
    if renderer is None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
        bar = Progress(
            *columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal
        )
        with bar:
            task = bar.add_task(title, total=episodes.horizon)
            yield lambda: bar.update(task, completed=int(episodes.world.books.time[0]))
        return
    if not console.is_terminal:  # a file gets the view once, as it is at the end
        yield lambda: None
        console.print(renderer.text(), no_wrap=True, end="\n\n")
        return
    from rich.live import Live

    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:

        def tell() -> None:
            begun = time.monotonic()
            live.update(renderer.text(console.height - 1), refresh=True)
            if fps > 0.0:
                time.sleep(max(1.0 / fps - (time.monotonic() - begun), 0.0))

        yield tell
    console.print()
