"""Here lives the simulator: one clock, drawn event by event from the declared model."""

from clusterorch.simulation.interventions import Do
from clusterorch.simulation.simulator import Simulator, SliceRecord
from clusterorch.simulation.trace import Trace, simulate

__all__ = ["Do", "Simulator", "SliceRecord", "Trace", "simulate"]
