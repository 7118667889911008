"""The short way through a send's properties stores what the long way would."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.broker.puts.stored_properties import SendRefusedError, StoredProperties
from rmqha.codec.codes import ResponseCode
from rmqha.codec.properties import parse_properties

names = st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "WAIT", "CLUSTER", "w", "", "WAITING"])
values = st.sampled_from(["true", "false", "x", "a b", "", "\x01", "é"])
pair_texts = st.one_of(
    st.builds(lambda name, value: f"{name}\x01{value}", names, values), st.sampled_from(["", "noise", "\x01"])
)


def stored(raw: bytes, *, slowly: bool = False) -> tuple[dict[str, str], bool]:
    made = StoredProperties("cluster")
    properties, wait, _ = (made.make_slowly if slowly else made.make)(raw, batch=False)
    assert properties.count(b"CLUSTER\x01cluster") == 1
    assert b"\x02\x02" not in properties
    return parse_properties(properties), wait


@given(st.lists(pair_texts, max_size=6), st.booleans())
def test_both_ways_store_the_same(pairs: list[str], ends_with_separator: bool) -> None:
    raw = "\x02".join(pairs).encode() + b"\x02" * ends_with_separator
    assert stored(raw) == stored(raw, slowly=True)


@pytest.mark.parametrize(
    ("raw", "expected", "waits"),
    [
        (b"", {"CLUSTER": "cluster"}, True),
        (b"WAIT\x01true", {"CLUSTER": "cluster"}, True),
        (b"TAGS\x01a\x02", {"TAGS": "a", "CLUSTER": "cluster"}, True),
        (b"WAIT\x01false\x02TAGS\x01a", {"TAGS": "a", "CLUSTER": "cluster"}, False),
        (b"TAGS\x01a\x02WAIT\x01true\x02KEYS\x01k", {"TAGS": "a", "KEYS": "k", "CLUSTER": "cluster"}, True),
        (b"TAGS\x01a\x02WAIT\x01true\x02", {"TAGS": "a", "CLUSTER": "cluster"}, True),
        (b"TAGS\x01a\x02broken\x02CLUSTER\x01mine", {"TAGS": "a", "CLUSTER": "cluster"}, True),
    ],
)
def test_wait_is_used_and_not_stored(raw: bytes, expected: dict[str, str], waits: bool) -> None:
    assert stored(raw) == (expected, waits)


@pytest.mark.parametrize("timer", [b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS", b"TIMER_DELIVER_MS"])
def test_what_asks_for_a_time_is_refused(timer: bytes) -> None:
    """It would be delivered at once. Beside a level it says nothing: RocketMQ 5's brokers go by that alone."""
    made, asked = StoredProperties("cluster"), b"TAGS\x01a\x02%b\x0115\x02WAIT\x01true" % timer
    for make in (
        partial(made.make, batch=False),
        partial(made.make_slowly, batch=False),
        partial(made.make, batch=True),
        made.make_half,
    ):
        with pytest.raises(SendRefusedError, match=f"{timer.decode()}, of RocketMQ 5") as refused:
            make(asked)
        assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
    for level, is_refused in ((b"3", False), (b"0", True)):
        raw = asked + b"\x02DELAY\x01" + level
        if is_refused:
            with pytest.raises(SendRefusedError):
                made.make(raw, batch=False)
        else:
            _, _, delay = made.make(raw, batch=False)
            assert delay is not None
            assert delay.level == 3
    for other in (b"TIMER_OUT_MS", b"TIMER_DELAY_SECS", b"TIMER_DEL"):
        assert other.decode() in stored(other + b"\x0115")[0], "as RocketMQ 5 leaves them on what it has delivered"
