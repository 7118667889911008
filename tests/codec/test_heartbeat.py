"""Heartbeats as Java, Go and Python clients send them."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.codec.hashing import tags_code
from rmqha.codec.heartbeat import HeartbeatData, build_subscription_data, decode_heartbeat, encode_heartbeat
from rmqha.errors import RemoteProtocolError

GOLDEN = Path(__file__).parent.parent / "golden" / "remoting"


@pytest.mark.parametrize("session", ["push-consumer", "push-consumer-binary", "lite-pull-consumer", "producer-json"])
def test_recorded_heartbeats_are_written_as_they_were_read(session: str) -> None:
    bodies = [
        frame["body"]
        for frame in map(json.loads, (GOLDEN / session / "frames.jsonl").read_text().splitlines())
        if frame.get("name") == "HEART_BEAT"
    ]
    assert bodies or session == "producer-json"
    for body in bodies:
        heartbeat = decode_heartbeat(body.encode())
        assert json.loads(encode_heartbeat(heartbeat)) == json.loads(body)


def test_codes_are_derived_where_they_are_missing_and_read_where_they_are_text() -> None:
    """Trap 24: as Go's and Python's clients leave them out, or write them."""
    go = {"topic": "T", "subString": "A || B", "codeSet": ["1", "-2"], "subVersion": 1700000000000000000}
    py = {"topic": "T", "subString": " A ||B||A", "codeSet": None}
    body = {"clientID": "c", "consumerDataSet": [
        {"groupName": "go", "subscriptionDataSet": [go]}, {"groupName": "py", "subscriptionData": [py]},
    ]}  # fmt: skip
    go_group, py_group = decode_heartbeat(json.dumps(body).encode()).consumer_data_set
    assert go_group.subscription_data_set[0].code_set == frozenset({1, -2})
    assert go_group.subscription_data_set[0].sub_version == 1700000000000000000
    assert py_group.subscription_data_set[0].code_set == frozenset(map(tags_code, "AB"))
    assert py_group.subscription_data_set[0].tags_set == ("A", "B")


@pytest.mark.parametrize(("member", "least"), [("codeSet", -(2**31)), ("subVersion", -(2**63))], ids=["int", "long"])
def test_numbers_are_those_of_java(member: str, least: int) -> None:
    def decode(number: int) -> HeartbeatData:
        entry = {"topic": "T", "subString": "A", member: [number] if member == "codeSet" else number}
        body = {"clientID": "c", "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [entry]}]}
        return decode_heartbeat(json.dumps(body).encode())

    assert decode(least)
    assert decode(-least - 1)
    for number in (least - 1, -least, 10**3999):
        with pytest.raises(RemoteProtocolError, match="does not parse"):
            decode(number)


def test_who_subscribes_to_everything_gets_everything_whatever_codes_he_adds() -> None:
    entry = {"topic": "T", "subString": "*", "codeSet": [5]}
    body = {"clientID": "c", "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [entry]}]}
    (group,) = decode_heartbeat(json.dumps(body).encode()).consumer_data_set
    assert [subscription.code_set for subscription in group.subscription_data_set] == [None]


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ((1, 1, 0), ("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")),
        ((0, 0, 4), ("CONSUME_ACTIVELY", "BROADCASTING", "CONSUME_FROM_FIRST_OFFSET")),
        ((2, -1, 6), ("CONSUME_ACTIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")),
        ((None, "", None), ("CONSUME_ACTIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET")),
    ],
)
def test_constants_may_be_numbers(told: tuple[Any, Any, Any], expected: tuple[str, str, str]) -> None:
    """The C++ client writes them so: its broadcasting groups were told of as clustering, others as null."""
    entry = dict(zip(("consumeType", "messageModel", "consumeFromWhere"), told, strict=True)) | {"groupName": "g"}
    body = json.dumps({"clientID": "c", "consumerDataSet": [entry]}).encode()
    (group,) = decode_heartbeat(body).consumer_data_set
    assert (group.consume_type, group.message_model, group.consume_from_where) == expected


def test_sets_may_be_null_or_absent() -> None:
    assert decode_heartbeat(b'{"clientID":"c","consumerDataSet":null}') == HeartbeatData("c")


def test_an_expression_without_a_tag_is_refused() -> None:
    assert build_subscription_data("T", "*").code_set is build_subscription_data("T", None).code_set is None
    with pytest.raises(RemoteProtocolError, match="names no tag"):
        build_subscription_data("T", " || ")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
members = st.sampled_from(["groupName", "topic", "subString", "codeSet", "subVersion", "subscriptionDataSet"])
sets = st.lists(st.dictionaries(members, json_values | st.lists(st.dictionaries(members, json_values)))) | json_values


@given(st.fixed_dictionaries({"clientID": json_values, "consumerDataSet": sets, "producerDataSet": sets}))
def test_any_other_shape_raises_only_our_error(value: object) -> None:
    with suppress(RemoteProtocolError):
        decode_heartbeat(json.dumps(value).encode())
