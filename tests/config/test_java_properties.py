import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.config.java_properties import Property, format_property, parse_properties


def pairs(text: str) -> list[tuple[str, str]]:
    properties, problems = parse_properties(text.encode())
    assert problems == []
    return [(p.key, p.value) for p in properties]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", [("a", "1")]),
        ("  a = 1  ", [("a", "1")]),
        ("a:1\nb 2\nc\t=\t3", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("# a=1\n! b=2\n\n   # c=3\nd=4", [("d", "4")]),
        ("a=x#y", [("a", "x#y")]),
        ("a=b=c", [("a", "b=c")]),
        ("a", [("a", "")]),
        ("a=", [("a", "")]),
        ("=1", [("", "1")]),
        (r"a\=b\ c=1", [("a=b c", "1")]),
        (r"path=C:\\data\t\u0041\q", [("path", "C:\\data\tAq")]),
        ("a=1,\\\n   2,\\\n   3\nb=4", [("a", "1,2,3"), ("b", "4")]),
        ("a=1\\\\\nb=2", [("a", "1\\"), ("b", "2")]),
        ("a=1\\\n# no comment inside a continuation", [("a", "1# no comment inside a continuation")]),
        ("a=1\r\nb=2\rc=3", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("\ufeffa=1", [("a", "1")]),
        ("a=1\\", [("a", "1")]),
    ],
)
def test_lines_are_read_as_java_reads_them(text: str, expected: list[tuple[str, str]]) -> None:
    assert pairs(text) == expected


def test_a_property_knows_the_line_it_starts_in() -> None:
    properties, _ = parse_properties(b"# first\n\na=1\\\n  2\nb=3\n")
    assert properties == [Property(3, "a", "12"), Property(5, "b", "3")]


def test_a_malformed_unicode_escape_is_a_problem_of_its_line_only() -> None:
    properties, problems = parse_properties(b"a=1\nb=\\u12\nc=\\\\u12\n")
    assert [p.key for p in properties] == ["a", "c"]
    assert [line for line, _ in problems] == [2]


def test_bytes_that_are_not_utf8_are_latin1_as_in_java() -> None:
    assert parse_properties(b"a=\xfc")[0] == [Property(1, "a", "ü")]


@given(st.binary(max_size=200))
def test_any_bytes_at_all_are_read_without_an_exception(data: bytes) -> None:
    parse_properties(data)


_VALUES = st.text(st.characters(codec="utf-8"), max_size=40)


@given(_VALUES.map(lambda text: text.strip(" ")))
def test_a_formatted_property_reads_back(value: str) -> None:
    assert pairs(format_property("key", value)) == [("key", value)]


LINES = st.text(st.sampled_from("ab=: \\\t\n\r\f#!ntu0041,"), max_size=40)


@given(LINES)
def test_an_independent_reader_reads_the_same(text: str) -> None:
    """Another library's reading, but for blanks behind a value, which are dropped here on purpose."""
    properties, problems = parse_properties(text.encode())
    if problems:
        with pytest.raises(ValueError, match="escape"):
            javaproperties.loads(text)
        return
    others = [
        (line.key, line.value) for line in javaproperties.parse(text) if isinstance(line, javaproperties.KeyValue)
    ]
    assert [key for _, key, _ in properties] == [key for key, _ in others]
    for (_, _, ours), (_, theirs) in zip(properties, others, strict=True):
        assert ours == theirs or theirs.startswith(ours)
