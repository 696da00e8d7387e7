"""A model of one failure mode that uses every table of the language, for tests that break it."""

import tomllib
from typing import Any

from clusterorch.models.checks import check
from clusterorch.models.spec import ModelSpec

TEXT = """
[model]
name = "tiny"
version = 1
summary = "one mode"
slice_seconds = 15
severities = ["mild", "moderate", "severe"]
assumed = "a test"

[sources]
paper = "A paper, 2020"

[job]
launch_seconds = 60
init_comm_seconds = 30
load_seconds = 60
save_every_seconds = 600
save_seconds = 30
copies = { value = 3, source = "paper table 2" }
assumed = "a test"

[prior]
kind = "stationary"

[[stream]]
name = "nccl"
title = "logs"
lost = 0.01
delay = 0.5
max_delay = 2
assumed = "a test"

[[stream]]
name = "smi"
title = "samples"
lost = 0.01
delay = 0.5
max_delay = 2
assumed = "a test"

[[timer]]
name = "limit"
seconds = 45
source = "paper section 3"

[[mode]]
name = "fault"
title = "something breaks"
category = "hardware"
rate_per_1000_node_days = 1.0
source = "paper: table 1"

[[mode.variant]]
name = "graded"
site = "gpu"
share = 0.5
severity = [0.5, 0.3, 0.2]

[[mode.variant]]
name = "plain"
site = "link"
share = 0.5
proximate = "gave_up"
assumed = "half"

[[benign]]
name = "noise"
site = "job"
rate_per_1000_node_days = 5.0
recovers_per_hour = 6
assumed = "a test"

[[mechanism]]
name = "hot"
title = "a GPU is hot"
effect = "slow"
slowdown = [1.1, 1.2, 1.3]
assumed = "a test"

[[mechanism]]
name = "stuck"
title = "a wait without end"
effect = "stall"
heals = 60
assumed = "a test"

[[mechanism]]
name = "gave_up"
title = "the job is ended"
effect = "crash"

[[mechanism]]
name = "told"
title = "peers print it"
transient = true

[[mechanism]]
name = "humming"
title = "noise"

[[edge]]
from = "fault.graded"
to = "hot"
gate = 0.5
assumed = "a test"

[[edge]]
from = "hot"
to = "stuck"
delay = { erlang = [2, 60] }
assumed = "a test"

[[edge]]
from = "fault.plain"
to = "stuck"

[[edge]]
from = "stuck"
to = "gave_up"
delay = { timer = "limit" }

[[edge]]
from = "gave_up"
to = "told"
gate = 0.8
assumed = "a test"

[[edge]]
from = "healthy.noise"
to = "humming"

[[signal]]
name = "heat"
title = "temperature"
stream = "smi"
entity = "gpu"
family = "gaussian"
unit = "C"
mean = 60
sd = 4
memory = 0.5
absent = 0.01
outlier = { probability = 0.01, mean = 50, sd = 20 }
assumed = "a test"
[[signal.when]]
mechanism = "hot"
where = "site"
mean = [70, 80, 90]
[[signal.when]]
job = "down"
mean = 40
source = "paper"

[[signal]]
name = "power"
title = "power over its own level"
stream = "smi"
entity = "gpu"
family = "log_ratio"
baseline = 600
unit = "W"
mean = 0.0
sd = 0.1
outlier = { probability = 0.01, mean = 0.5, sd = 1.0 }
assumed = "a test"

[[signal]]
name = "alarm"
title = "an alarm line"
stream = "smi"
entity = "gpu"
family = "presence"
probability = 0.001
contamination = 0.1
assumed = "a test"
[[signal.when]]
mechanisms = ["hot", "stuck"]
where = "site"
probability = [0.5, 0.6, 0.7]
[[signal.when]]
mechanism = "hot"
where = "others"
probability = 0.05

[[signal]]
name = "timeout"
title = "a timeout line"
stream = "nccl"
entity = "rank"
family = "chorus"
told = 0.001
speak = { site = 0.9, node = 0.9, rest = 0.9 }
quiet = 0.0001
assumed = "a test"
[[signal.when]]
mechanism = "told"
told = 0.9

[[signal]]
name = "first"
title = "the first to complain"
stream = "nccl"
entity = "rank"
family = "first_speaker"
speaks = 0.001
weight = { site = 1, node = 1, rest = 1 }
assumed = "a test"
[[signal.when]]
mechanism = "gave_up"
speaks = 0.9
weight = { site = 3, node = 2, rest = 1 }

[[signal]]
name = "skips"
title = "steps skipped"
stream = "nccl"
entity = "job"
family = "count"
probabilities = [0.9, 0.04, 0.03, 0.02, 0.01]
contamination = 0.2
assumed = "a test"
[[signal.when]]
mechanism = "humming"
probabilities = [0.1, 0.1, 0.3, 0.3, 0.2]

[[signal]]
name = "state"
title = "what the job says"
stream = "nccl"
entity = "job"
family = "categorical"
values = ["well", "ill"]
probabilities = [0.99, 0.01]
assumed = "a test"
[[signal.when]]
phases = ["save"]
probabilities = [0.5, 0.5]

[[action]]
name = "restart"
title = "start again"
target = "node"
restarts = true
[[action.effect]]
of = ["fault.plain"]
relation = "site"
clears = 0.9
assumed = "a test"

[[action]]
name = "roll_back"
title = "load an older copy"
target = "copy"
restarts = true
discards = true

[[protocol]]
name = "complete"
title = "as it was"
"""


def raw() -> dict[str, Any]:
    """Fresh raw tables, to be edited."""
    return tomllib.loads(TEXT)


def spec() -> ModelSpec:
    """The model as it stands."""
    return ModelSpec.model_validate(raw())


def named(tables: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The table of that name in a list of tables; an edge is named `from>to`."""
    return next(t for t in tables if name in (t.get("name"), f"{t.get('from')}>{t.get('to')}"))


def checked(edited: dict[str, Any], *, thorough: bool = True) -> list[str]:
    """Warnings about edited tables."""
    return check(ModelSpec.model_validate(edited), edited, "tiny.toml", thorough=thorough)
