"""Walking through a JSON object: the values are those that json finds, and nothing but errors of ours comes out."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.codec.json_walk import VALUE_SIZE_MAX, JsonWalk
from rmqha.errors import RemoteProtocolError

VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3))


def take_all(walk: JsonWalk) -> None:
    for _ in walk.members():
        walk.take()


@given(st.dictionaries(st.text(), st.dictionaries(st.text(), VALUES, max_size=4), max_size=4), st.booleans())
def test_nested_members_are_those_of_the_object(value: dict[str, Any], indented: bool) -> None:
    walk = JsonWalk(json.dumps(value, indent=2 if indented else None))
    found = {key: {inner: walk.take() for inner in walk.members()} for key in walk.members()}
    assert found == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"a"}',
        '{"a":}',
        '{"a":1',
        '{"a":1 "b":2}',
        "{1:2}",
        '{"a":' + "[" * 4000 + "}",
        '{"a":"' + "x" * VALUE_SIZE_MAX + '"}',
        '{"a":1' + "0" * VALUE_SIZE_MAX + "}",
    ],
)
def test_what_is_no_such_object_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        take_all(JsonWalk(text))


def test_null_has_no_members() -> None:
    assert list(JsonWalk(" null").members()) == []


@given(st.text(alphabet='{}[]":, ntrue1e.\\'))
def test_noise_is_an_error_of_ours_or_an_object(text: str) -> None:
    with suppress(RemoteProtocolError):
        take_all(JsonWalk(text))
