import io

import pytest
from rich.console import Console

from clusterorch.errors import InvalidIntervention, OutputExists
from clusterorch.simulation import Trace
from clusterorch.simulation.command import drawn_variant, run
from tests.simulation.worlds import world


def quiet():
    return Console(file=io.StringIO(), width=120)


def test_an_episode_is_simulated_written_and_told(tmp_path):
    console = quiet()
    trace = run("gpu_xid.engine_fault/1", "2x2", 3, tmp_path, logs=True, slices=40, at=5, console=console)
    assert Trace.load(tmp_path).events == trace.events
    assert list((tmp_path / "logs").glob("*/kernel.log"))
    said = console.file.getvalue()
    assert "gpu_xid.engine_fault at gpu 1 from slice 5 on" in said
    assert "rank_crashed" in said
    with pytest.raises(OutputExists):
        run("gpu_xid.engine_fault/1", "2x2", 3, tmp_path, slices=40, console=quiet())
    run(None, "2x2", 3, tmp_path, logs=True, protocol="excerpt", slices=40, force=True, console=quiet())


def test_a_mode_draws_its_variant_by_share():
    model = world()
    drawn = [drawn_variant(model, "gpu_xid/2", seed) for seed in range(300)]
    assert {name.split("/")[1] for name in drawn} == {"2"}
    mode = model.modes["gpu_xid"]
    for variant in mode.variant:
        share = sum(name == f"gpu_xid.{variant.name}/2" for name in drawn) / 300
        assert abs(share - variant.share) < 4.9 * (variant.share * (1 - variant.share) / 300) ** 0.5
    assert drawn_variant(model, None, 0) is None
    assert drawn_variant(model, "gpu_xid.gsp_hang", 0) == "gpu_xid.gsp_hang"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"protocol": "gossip"}, "protocol"),
        ({"logs": True}, "folder"),
        ({"slices": 0}, "slices"),
        ({"fault": "x"}, "near"),
    ],
)
def test_what_cannot_be_done_is_said(options, said):
    with pytest.raises(InvalidIntervention, match=said):
        run(**{"layout": "2x2", "console": quiet(), **options})
