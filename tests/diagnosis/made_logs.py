"""Logs written by hand, and what the reference model makes of them."""

from clusterorch.diagnosis.diagnose import default_incident_model, diagnose
from clusterorch.telemetry.patterns import load_formats
from clusterorch.telemetry.reading import read_paths

LOST = """\
May  6 21:03:20 n3 kernel: mlx5_core 0000:18:00.0 ibp24s0: Link down
May  6 21:03:26 n7 kernel: NVRM: Xid (PCI:0000:61:00): 79, pid=1234, GPU has fallen off the bus.
"""


def lost_from_bus(folder):
    """The diagnosis of a GPU that fell off the bus, with a link that went down before it."""
    file = folder / "kernel.log"
    file.write_text(LOST)
    model = default_incident_model()
    return diagnose(model, read_paths([file], load_formats(model.format_files)))
