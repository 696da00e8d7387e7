"""Here lives the declared model: `available()` names, `load(...)` gives a `Model` grounded on a layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterorch.models.layout import Layout
from clusterorch.models.reading import available, fingerprint, locate, locate_overlay, read, read_toml, read_whole
from clusterorch.models.spec import Mechanism, Mode, ModelSpec, Signal

if TYPE_CHECKING:
    import networkx

    from clusterorch.models.compile import Network

__all__ = ["Layout", "Model", "available", "load"]


@dataclass(frozen=True)
class Model:
    """A model file, overlays applied, on a layout.  Compiled when first used."""

    spec: ModelSpec
    layout: Layout
    path: Path
    overlays: tuple[Path, ...]
    raw: dict[str, Any] = field(repr=False)
    limits: tuple[tuple[str, float], ...] = ()

    @property
    def name(self) -> str:
        """Name in the file."""
        return self.spec.model.name

    @cached_property
    def sha256(self) -> str:
        """Fingerprint of the merged tables."""
        return fingerprint(self.raw)

    @property
    def modes(self) -> dict[str, Mode]:
        """Failure modes by name; `healthy` is not one of them."""
        return {mode.name: mode for mode in self.spec.mode}

    @property
    def mechanisms(self) -> dict[str, Mechanism]:
        """Mechanisms by name."""
        return {mechanism.name: mechanism for mechanism in self.spec.mechanism}

    @property
    def signals(self) -> dict[str, Signal]:
        """Signals by name."""
        return {signal.name: signal for signal in self.spec.signal}

    @property
    def variants(self) -> list[str]:
        """Every variant as `mode.variant`, benign ones as `healthy.name`."""
        from clusterorch.models.ground import variant_names

        return variant_names(self.spec)

    @property
    def format_files(self) -> list[Path]:
        """Files of line patterns and templates that the model and its overlays name, in order."""
        return self._files("formats")

    @property
    def command_files(self) -> list[Path]:
        """Files of shell commands that gather evidence, which the model and its overlays name, in order."""
        return self._files("commands")

    def _files(self, key: str) -> list[Path]:
        files = (self.path, *self.overlays)
        return [file.parent / name for file in files for name in read_toml(file).get(key, [])]

    @cached_property
    def graph(self) -> networkx.DiGraph:
        """The causal graph: variants, mechanisms and signals."""
        from clusterorch.causal.graph import causal_graph

        return causal_graph(self.spec)

    @cached_property
    def network(self) -> Network:
        """The compiled network; the age of a halt is published."""
        return self.compile(hidden_age=False)

    @cached_property
    def hidden_network(self) -> Network:
        """The compiled network with the age of a halt inside the state, for logs that do not publish it."""
        return self.compile(hidden_age=True)

    def compile(self, *, hidden_age: bool) -> Network:
        """Compile for this layout and these limits."""
        from clusterorch.models.compile import compile_network

        return compile_network(self.spec, self.layout, limits=dict(self.limits), hidden_age=hidden_age)

    def with_limits(self, limits: dict[str, float]) -> Model:
        """The same model with other timer limits, seconds by name (as a log prints them)."""
        return Model(self.spec, self.layout, self.path, self.overlays, self.raw, tuple(sorted(limits.items())))

    def with_layout(self, layout: Layout) -> Model:
        """The same model on another layout."""
        return Model(self.spec, layout, self.path, self.overlays, self.raw, self.limits)


def load(
    name: str | Path = "reference",
    *,
    layout: str | Layout = "1x8",
    overlays: Sequence[str | Path] = (),
    **options: int,
) -> Model:
    """Load a packaged model by name, or a file by path, and ground it on a layout.

    Args:
        name: one of `available()`, or a path to a .toml file.
        layout: nodes x GPUs, as "4x8", or a `Layout`.
        overlays: files, or names under `models/overlays`, applied in order.
        **options: `rails`, `leaves`, `spares`, `storage`, `copies` of the layout.

    Raises:
        UnknownModel: no such model or overlay.
        InvalidModel: the file cannot be read or says something impossible.
        InvalidLayout: not a layout, or out of range.
    """
    path, found = locate(name), tuple(locate_overlay(overlay) for overlay in overlays)
    spec, raw = read(path, list(found))
    from clusterorch.models.checks import check
    from clusterorch.models.provenance import check_overlay

    for overlay in found:
        check_overlay(read_whole(overlay), raw, str(overlay))
    check(spec, raw, " + ".join(str(p) for p in (path, *found)), thorough=True)
    options.setdefault("copies", spec.job.copies)
    return Model(spec, Layout.parse(layout, **options), path, found, raw)
