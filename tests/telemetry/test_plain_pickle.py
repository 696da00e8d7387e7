import builtins
import os
import pickle
import struct

import pytest

from clusterorch.telemetry.plain_pickle import Bounds, NotPlain, load_plain

PLAIN = {
    "version": "2.9",
    "nested": [{"a": 1, "b": (2, 3.5, None)}, [True, False], ()],
    "large": 1 << 70,
    "negative": -5,
    "time": 1758610505592849034,
    "bytes": b"\x00\xff",
    "text": "gr\u00fcn",
    "set": {1, 2},
    "frozen": frozenset({"x"}),
    7: None,
}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_of_every_protocol_come_back(protocol):
    value = dict(PLAIN)
    if protocol < 4:  # older protocols build sets by calling their class
        del value["set"], value["frozen"]
    if protocol < 3:
        del value["bytes"]
    assert load_plain(pickle.dumps(value, protocol)) == value


def test_shared_parts_stay_shared():
    part = [1]
    first, second = load_plain(pickle.dumps([part, part]))
    assert first is second


class _Calls:
    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


class _Stateful:
    def __init__(self):
        self.state = 1


def _mutual():
    outer: list = []
    outer.append({"back": outer})
    return pickle.dumps(outer)


def _bomb(levels):
    """Lists of lists that all share their parts: small on disk, huge when walked."""
    text = b"\x80\x02]q\x00"
    for level in range(levels):
        text += b"](" + b"h" + bytes([level]) + b"h" + bytes([level]) + b"e" + b"q" + bytes([level + 1])
    return text + b"."


HOSTILE = {
    "os.system": pickle.dumps(_Calls(os.system, "touch /tmp/pickle_was_run")),
    "builtins.eval": pickle.dumps(_Calls(builtins.eval, "1 + 1")),
    "old eval": pickle.dumps(_Calls(builtins.eval, "1 + 1"), 0),
    "an object": pickle.dumps(_Stateful()),
    "an object of protocol 0": pickle.dumps(_Stateful(), 0),
    "a bare global": b"cos\nsystem\n.",
    "a stacked global": b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
    "an instance": b"(S'echo'\nios\nsystem\n.",
    "an obj": b"(cos\nsystem\nS'echo'\no.",
    "a new object": b"\x80\x02cbuiltins\nobject\n)\x81.",
    "an extension": b"\x80\x02\x82\x01.",
    "a persistent id": b"Pwhatever\n.",
    "a persistent id from the stack": b"\x80\x02K\x01Q.",
    "a build": b"\x80\x02}}b.",
    "a buffer from outside": b"\x80\x05\x97.",
    "itself": _mutual(),
    "shared lists that unfold": _bomb(60),
    "nesting": b"\x80\x02" + b"]" * 200 + b"a" * 199 + b".",
    "a number of megabytes": b"\x80\x02\x8b" + struct.pack("<i", 1 << 20) + b"\x01" * (1 << 20) + b".",
    "a number of many digits": b"I" + b"9" * 5000 + b"\n.",
    "a long key": pickle.dumps({1 << 61: 1}),
    "a key that is a tuple": pickle.dumps({(1, 2): 1}),
    "a key that is a number with a fraction": pickle.dumps({1.5: 1}),
    "a promise of bytes that are not there": b"\x80\x02X\xff\xff\xff\x7fabc.",
    "nothing": b"",
    "no stop": b"\x80\x02}",
    "two values": b"\x80\x02K\x01K\x02.",
    "only a mark": b"\x80\x02(.",
    "a value never kept": b"\x80\x02h\x09.",
    "a pop of nothing": b"\x80\x020.",
    "an append to a number": b"\x80\x02K\x01K\x02a.",
    "a key without value": b"\x80\x02}(K\x01u.",
    "a list in a set": b"\x80\x04\x8f(]\x90.",
    "text": b"iteration 1 | loss 2.0\n",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_what_is_not_plain_is_refused(data, monkeypatch):
    monkeypatch.setattr(os, "system", lambda command: pytest.fail(f"ran {command}"))
    with pytest.raises(NotPlain):
        load_plain(data)


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_cut_pickle_is_refused(cut):
    with pytest.raises(NotPlain):
        load_plain(pickle.dumps(PLAIN, 4)[:-cut])


def test_the_bounds_hold():
    data = pickle.dumps(list(range(1000)))
    assert load_plain(data) == list(range(1000))
    for bounds in (Bounds(size=100), Bounds(steps=500), Bounds(values=500)):
        with pytest.raises(NotPlain):
            load_plain(data, bounds)
    with pytest.raises(NotPlain, match="deep"):
        load_plain(pickle.dumps([[[[1]]]]), Bounds(depth=3))
    with pytest.raises(NotPlain, match="bits"):
        load_plain(pickle.dumps(1 << 40), Bounds(bits=32))


def test_the_message_says_where_and_what():
    with pytest.raises(NotPlain, match="byte 2: instruction GLOBAL could run code"):
        load_plain(b"\x80\x02cos\nsystem\n.")
