import pytest

from clusterorch.telemetry.prefixes import peel
from clusterorch.telemetry.timestamps import find_stamp


@pytest.mark.parametrize(
    ("line", "text", "context"),
    [
        ("[rank3]: words", "words", {"rank": "3"}),
        ("[default3]:words", "words", {"local": "3"}),
        ("[rank3]:[E611 08:14:55.1 x.cpp:629] [Rank 3] words", " words", {"rank": "3"}),
        (
            "[rank1]:[E611 08:14:55.1 x.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 1]  words",
            "  words",
            {"rank": "1", "group": "ID 0 PG GUID 0(default_pg)"},
        ),
        ("[PG 0 Rank 5] words", " words", {"rank": "5", "group": "0"}),
        ("[PG 4 Rank 1] words", " words", {"group": "4"}),
        ("[rank9]:[PG 4 Rank 1] words", " words", {"rank": "9", "group": "4"}),
        ("Sun Feb 25 12:21:10 2018[1,17]<stderr>:words", "words", {"rank": "17"}),
        ("worker-0: words", "words", {"host": "worker-0"}),
        ("(Actor pid=30211, ip=10.1.3.44) words", " words", {"pid": "30211", "host": "10.1.3.44"}),
        ("(EngineCore pid=7) words", " words", {"pid": "7"}),
        (
            "n17:8123:8471 [3] NCCL INFO words",
            " NCCL INFO words",
            {"host": "n17", "pid": "8123", "local": "3"},
        ),
        ("n17:8123:8471 NCCL INFO words", " NCCL INFO words", {"host": "n17", "pid": "8123"}),
        ("[jz22:14413:0:14413] words", " words", {"host": "jz22", "pid": "14413"}),
        ("[2026-09-01 04:14:44] rank 17 words", " words", {"rank": "17"}),
        ("> rank 5: words", " words", {"rank": "5"}),
        ("May  6 21:03:26 gq-606 kernel: words", "words", {"host": "gq-606"}),
        ("May  6 21:03:26 gq-606 sshd[17]: words", "words", {"host": "gq-606"}),
        ("2023-12-19T22:40:41.003 [trainer-9]:[E x.cpp:1224] [Rank 73] words", " words", {"rank": "73"}),
        ("[2023-04-29 06:51:29,903] [INFO] [loss_scaler.py:188:update_scale] words", " words", {}),
        ("W0812 23:21:02.886410 139807001610048 torch/x/api.py:851] words", "words", {}),
        ("words [repeated 2x across cluster]", "words", {"repeated": "2"}),
        ("ordinary words: 1:2 [3]", "ordinary words: 1:2 [3]", {}),
        ("| loss | nan |", "| loss | nan |", {}),
        ("", "", {}),
    ],
)
def test_each_dialect_is_peeled_and_told(line, text, context):
    body = peel(line, find_stamp(line))
    assert body.text == text
    assert body.context == context


def test_the_bracketed_number_of_nccl_is_a_local_device_and_no_rank():
    assert "rank" not in peel("n17:8123:8471 [3] NCCL INFO x", None).context
