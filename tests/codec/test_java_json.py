"""JSON as fastjson writes it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.codec.java_json import ObjectKey, dumps, loads
from rmqha.errors import RemoteProtocolError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"offsetTable":{"TopicTest@g1":{0:5280,1:5312}}}', {"offsetTable": {"TopicTest@g1": {0: 5280, 1: 5312}}}),
        ('{ "a" : { 0 : 1 , -2 : [ 3 , { 4 : null } ] } }', {"a": {0: 1, -2: [3, {4: None}]}}),
        ("{0:1,}", {0: 1}),
        ('{"a":{},"b":[],1:2}', {"a": {}, "b": [], 1: 2}),
        ("{name:true}", {"name": True}),
        ('{{"queueId":0,"topic":"t"}:{"x":1}}', {'{"queueId":0,"topic":"t"}': {"x": 1}}),
        ('{"a":{"b":[{"c":1}]},"d":{"$ref":"$.a.b[0]"}}', {"a": {"b": [{"c": 1}]}, "d": {"c": 1}}),
        ('[{"a":1},{"$ref":"$[0]"}]', [{"a": 1}, {"a": 1}]),
        ('[1,{"$ref":"$[0]"}]', [1, 1]),
        ('{"x":"\\u6807","y":1.5e3}', {"x": "标", "y": 1500.0}),
    ],
)
def test_reading(text: str, value: Any) -> None:
    assert loads(text) == value
    assert loads(text.encode()) == value


def test_object_keys_can_be_read_and_written() -> None:
    text = '{"t":{{"queueId":0,"topic":"a"}:1,{"queueId":1,"topic":"a"}:2}}'
    table = loads(text)["t"]
    assert [loads(key) for key in table] == [{"queueId": 0, "topic": "a"}, {"queueId": 1, "topic": "a"}]
    assert all(isinstance(key, ObjectKey) for key in table)
    assert dumps({"t": table}) == text


def test_integer_keys_are_written_unquoted() -> None:
    assert dumps({"offsetTable": {"T@g": {0: 1, 7: 2}}}) == '{"offsetTable":{"T@g":{0:1,7:2}}}'


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


@given(JSON)
def test_round_trip(value: Any) -> None:
    if "$ref" not in str(value):
        assert loads(dumps(value)) == value


@given(st.recursive(st.none() | st.booleans() | st.text(), lambda inner: st.dictionaries(st.text(), inner)))
def test_plain_json_is_written_as_everybody_writes_it(value: Any) -> None:
    assert json.loads(dumps(value)) == value


@given(st.text('{}[]:,"01a \\$ref.', max_size=30))
def test_noise_is_refused_by_one_error_only(text: str) -> None:
    try:
        loads(text)
    except RemoteProtocolError:
        return


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no value"),
        ("{", "a key|no value"),
        ("{0}", "a key expected"),
        ("{0:1", "',' or '}' expected"),
        ("[1 2]", "',' or ']' expected"),
        ("{1:1}x", "unexpected text at character 5"),
        ("{[1]:1}", "a key expected"),
        ("[" * 1000, "nested deeper"),
        ("{0:" * 1000, "nested deeper"),
        ("{" * 1000, "nested deeper"),
        (b"\xff", "not UTF-8"),
        ('[{"$ref":"$[7]"}]', "points nowhere"),
        ('[{"$ref":"$.a"}]', "points nowhere"),
        ('[{"$ref":".."}]', "not supported"),
        ('[{"$ref":"@"}]', "not supported"),
        ('[{"$ref":"$[1]"},{"$ref":"$[0]"}]', "another reference"),
    ],
)
def test_what_is_wrong_is_named(text: str | bytes, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "1" * 5000,
        '{"a":%s}' % ("1" * 5000),
        "{%s:1}" % ("1" * 5000),
        '{"a":1e999}',
        "{1:NaN}",
        "-Infinity",
        '"\\ud800"',
        '{"\\uDfff":1}',
        '[{"a":["\\ud800x"]}]',
        "[" * 900 + '"\\ud800"' + "]" * 900,
        "[" * 900 + '{"$ref":"$"}' + "]" * 900,
    ],
)
def test_what_python_reads_and_nobody_can_use_is_refused(text: str) -> None:
    """Each of these once left ``loads`` as another error, or failed later where the value was stored."""
    with pytest.raises(RemoteProtocolError):
        loads(text)


REFERENCE = '{"$ref":"$.a"}'


def test_references_are_bounded_together() -> None:
    def with_references(count: int) -> str:
        return json.dumps([[0] * 999, *[{"$ref": "$[0]"}] * count])

    assert len(loads(with_references(16))) == 17
    with pytest.raises(RemoteProtocolError, match="stand for more than"):
        loads(with_references(17))


@pytest.mark.parametrize(
    "large",
    ['"{}"', '{{"{}":1}}', '[["{}"]]', "1{}"],
)
def test_so_is_the_text_that_references_repeat(large: str) -> None:
    """A request of 256 KiB, shown in the words that refuse it, took gigabytes, and many seconds of the event loop."""

    def with_references(count: int) -> str:
        text = "0" * 925 if large == "1{}" else "x" * 1024  # three bits count as a digit
        return f'{{"a":{large.format(text)},"b":[{",".join([REFERENCE] * count)}]}}'

    assert len(loads(with_references(1024))["b"]) == 1024
    with pytest.raises(RemoteProtocolError, match="references stand for more than 1048576 characters"):
        loads(with_references(1025))
