"""Here lives what a job loses and gains beside its faults: the table `[economy]` of a model file."""

from __future__ import annotations

from clusterorch.models.declared import Count, Declared, NonNegative, Positive, Probability, Slowdown


class Economy(Declared):
    """`[economy]`: published rules of the job and its cluster, the same for world and filter.  Seconds and factors."""

    requeue_seconds: Positive  # from a crash until the scheduler starts the job again by itself
    retries: Count  # times it does so without a copy completed in between
    repair_seconds: Positive  # mean time until an isolated node, or the switch one goes around, is back
    repair_stages: Count  # of the Erlang distribution of that time
    frail: Positive  # hazard of a node that was in repair, in those of another
    tree_slowdown: Slowdown  # step time with a tree in place of a ring, healthy
    around_slowdown: Slowdown  # step time around a rail or a leaf
    dwell_seconds: Positive  # between two changes of the topology
    false_intervention: NonNegative  # slices that an action costs, beside all else, that nothing called for
    dark: Probability  # a slice, that the collector of a stream of a node goes silent
    dark_seconds: Positive  # mean time that it stays so
