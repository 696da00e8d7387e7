"""Here lives the map of the noise: which counter each draw of the simulator reads.

A counter is (slice, entity, channel), see `clusterorch.probability.noise`.  Numbers follow the
declared model, never the layout of arrays, so that two worlds which differ by an intervention
read the same noise for the same variable.  This is the coupling under every counterfactual.

Telemetry (32-bit draws).  Entity `e` of entity kind number `k` is `k << 24 | e`; the channel of a
signal is its place among the signals of its kind in order of the file, first speakers left out.
Collector `c` is `CELLS << 24 | c`; channels 2 s and 2 s + 1 of stream s are loss and delay.

Causal (53-bit draws), the entity is one of the constants below:

====================  ============================================================
SLOT                  ONSET, SEVERITY, SITE, RECOVERY, CLEARS, BROUGHT, BROUGHT_TO
EDGE                  2 e: gate of declared edge e, 2 e + 1: its advance
MECHANISM             m: whether declared mechanism m heals
ENSEMBLE              s: whether chorus s is told, who speaks first in signal s
MOMENT                s << 24 | e: place of a line inside its slice (events only)
MECHANISM_MOMENT      m: the same for a change of mechanism m, or of the slot
====================  ============================================================
"""

CELLS = 64  # above every entity kind number
KIND_SHIFT = 24

SLOT, EDGE, MECHANISM, ENSEMBLE, MOMENT, MECHANISM_MOMENT = range(6)
ONSET, SEVERITY, SITE, RECOVERY, CLEARS, BROUGHT, BROUGHT_TO = range(7)
