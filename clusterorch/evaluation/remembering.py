"""Here lives a model that is compiled once for each layout and each set of limits, however often it is asked."""

from __future__ import annotations

from dataclasses import dataclass, field

from clusterorch.models import Layout, Model
from clusterorch.models.compile import Network

MOST_KEPT = 64


@dataclass(frozen=True)
class RememberingModel(Model):
    """A model whose compiled networks are kept, the newest `MOST_KEPT` of them."""

    known: dict[object, Network] = field(default_factory=dict, repr=False, compare=False)

    def compile(self, *, hidden_age: bool) -> Network:
        """Compile for this layout and these limits, unless that was done before."""
        key = (self.layout, self.limits, hidden_age)
        if key not in self.known:
            while len(self.known) >= MOST_KEPT:
                del self.known[next(iter(self.known))]
            self.known[key] = super().compile(hidden_age=hidden_age)
        return self.known[key]

    def with_limits(self, limits: dict[str, float]) -> RememberingModel:
        """The same model with other timer limits, seconds by name."""
        changed = tuple(sorted(limits.items()))
        return RememberingModel(self.spec, self.layout, self.path, self.overlays, self.raw, changed, self.known)

    def with_layout(self, layout: Layout) -> RememberingModel:
        """The same model on another layout."""
        return RememberingModel(self.spec, layout, self.path, self.overlays, self.raw, self.limits, self.known)


def remembering(model: Model) -> RememberingModel:
    """The same model, with a memory of its own."""
    return RememberingModel(model.spec, model.layout, model.path, model.overlays, model.raw, model.limits)
