"""Here live trained agents on disk: a folder with `config.json`, `model.safetensors` and a card.

Nothing is pickled.  A folder is complete or not there: it is written beside its place and renamed.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from clusterorch.errors import ClusterorchError, InvalidAgent, OutputExists
from clusterorch.learning.network import Policy, Shape
from clusterorch.learning.team import Team

VERSION = 2
CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"


def save_agent(folder: Path, policy: Policy, told: dict[str, Any], card: str, *, force: bool = False) -> Path:
    """Write an agent.

    Args:
        folder: to make.
        policy: the network.
        told: what else stands in the configuration: what it observes, how it was trained.
        card: the text of its README.
        force: replace what is there.

    Raises:
        OutputExists: the folder is there, and not `force`.
    """
    if folder.exists() and not force:
        raise OutputExists(f"{folder} is there already: give another folder, or --force")
    config = {"version": VERSION, "shape": asdict(policy.shape), **told}
    with replacing(folder) as fresh:
        write_tensors(policy.state_dict(), fresh / WEIGHTS)
        (fresh / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
        (fresh / CARD).write_text(card, encoding="utf-8")
    return folder


def load_agent(folder: Path) -> tuple[Policy, dict[str, Any]]:
    """The network of an agent, and its configuration.

    Raises:
        InvalidAgent: a file is missing or broken, of another version, or does not fit the configuration.
    """
    config = read_config(folder)
    known = {f.name for f in fields(Shape)}
    needed = {f.name for f in fields(Shape) if f.default is MISSING}
    shape = config.get("shape")
    if not isinstance(shape, dict) or not needed <= set(shape) <= known:
        odd = sorted((set(shape or {}) - known) | (needed - set(shape or {})))
        raise InvalidAgent(
            f"{folder / CONFIG}: shape has other keys than this version: {', '.join(odd)}; train it anew"
        )
    try:
        policy = Policy(Shape(**shape))
    except (KeyError, TypeError, ValueError, RuntimeError, AssertionError) as error:
        said = " ".join(str(error).split())
        raise InvalidAgent(f"{folder / CONFIG}: shape makes no network ({said}); train it anew") from None
    load_into(policy, folder / WEIGHTS)
    return policy, config


def load_into(policy: Policy, file: Path) -> None:
    """Weights of a file, all of them and no other.

    Raises:
        InvalidAgent: the file is missing or broken, or holds other weights.
    """
    found = read_tensors(file)
    wanted = policy.state_dict()
    for name in sorted(set(found) ^ set(wanted)):
        raise InvalidAgent(
            f"{file}: weight {name} is {'unknown' if name in found else 'missing'}; train the agent anew"
        )
    for name, value in found.items():
        if value.shape != wanted[name].shape:
            here, there = tuple(wanted[name].shape), tuple(value.shape)
            raise InvalidAgent(f"{file}: weight {name} has shape {there}, and {here} is needed; another model made it")
        if not torch.isfinite(value).all():
            raise InvalidAgent(f"{file}: weight {name} is not finite; take an earlier checkpoint")
    policy.load_state_dict(found)


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of an agent or a checkpoint.

    Raises:
        InvalidAgent: it is missing or broken, or of another version.
    """
    file = folder / CONFIG
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidAgent(f"{file}: {error.strerror}; give the folder of an agent") from None
    except ValueError:
        raise InvalidAgent(f"{file}: not JSON; give the folder of an agent") from None
    if not isinstance(config, dict) or config.get("version") != VERSION:
        found = config.get("version") if isinstance(config, dict) else None
        raise InvalidAgent(f"{file}: version {found}, and this program reads {VERSION}; train the agent anew")
    return config


def read_tensors(file: Path) -> dict[str, torch.Tensor]:
    """All tensors of a file.

    Raises:
        InvalidAgent: it is missing or broken.
    """
    try:
        return load_file(file)
    except FileNotFoundError:
        raise InvalidAgent(f"{file}: no such file; give the folder of an agent") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise InvalidAgent(f"{file}: {error}; take an earlier checkpoint") from None


def write_tensors(tensors: dict[str, torch.Tensor], file: Path) -> None:
    """Write tensors to a file that whoever may read the others may read; safetensors' own files are their owner's."""
    file.write_bytes(save({name: value.contiguous() for name, value in tensors.items()}))


class replacing:  # noqa: N801, a context manager used as a word
    """A folder that takes the place of another when it is complete.

    The one before is kept as `NAME.before` until the new one is in its place, so one of them is always whole.  The
    processes of a team write to it together.
    """

    def __init__(self, folder: Path, team: Team | None = None) -> None:
        self.folder, self._team = folder, team or Team()
        self._fresh = folder.with_name(folder.name + ".part")
        self._before = folder.with_name(folder.name + ".before")

    def __enter__(self) -> Path:
        """An empty folder to write to."""
        if self._team.leads:
            if self._before.exists() and not self.folder.exists():
                self._before.rename(self.folder)  # a program ended between the two renames below
            shutil.rmtree(self._fresh, ignore_errors=True)
            self._fresh.mkdir(parents=True)
        self._team.wait()
        return self._fresh

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Put it in its place, or leave nothing of it.

        Raises:
            ClusterorchError: it could not be written, for want of room for example.
        """
        failed = self._team.any(flag=kind is not None)
        if failed or not self._team.leads:
            if failed and self._team.leads:
                shutil.rmtree(self._fresh, ignore_errors=True)
            self._team.wait()
            if isinstance(error, OSError | SafetensorError):
                raise ClusterorchError(
                    f"{self.folder} cannot be written: {error}; what was there before is whole, make room and go on"
                ) from None
            return
        shutil.rmtree(self._before, ignore_errors=True)
        if self.folder.exists():
            self.folder.rename(self._before)
        self._fresh.rename(self.folder)
        shutil.rmtree(self._before, ignore_errors=True)
        self._team.wait()


def newest(folder: Path) -> Path:
    """A folder, or the one before it if the program ended between the two renames of `replacing`."""
    before = folder.with_name(folder.name + ".before")
    return before if not folder.exists() and before.exists() else folder
