r"""Java's .properties format, read with line numbers.

    line      comment (first non-blank is # or !), blank, or KEY SEPARATOR VALUE
    separator the first unescaped '=', ':' or white space; white space around '=' and ':' belongs to it
    escapes   \t \n \r \f \uXXXX; a backslash before any other character is dropped
    continued a line ending in an odd number of backslashes; the next line's leading white space is dropped

Differences, on purpose: UTF-8 is read as UTF-8 (Java: always Latin-1, which we fall back to), and white space
after a value is dropped (Java keeps it and then silently ignores a number that ends in a blank).

Source: java.util.Properties.load(Reader), its public documentation.
"""

import re
from typing import NamedTuple

_BLANKS = " \t\f"
_SEPARATOR = re.compile(r"(?:[^\\=: \t\f]|\\.)*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = str.maketrans({"\\": "\\\\"} | {char: f"\\{name}" for name, char in _NAMED.items()})


class Property(NamedTuple):
    """One ``key=value``; ``line`` is where it starts, counted from 1."""

    line: int
    key: str
    value: str


def parse_properties(data: bytes) -> tuple[list[Property], list[tuple[int, str]]]:
    r"""Return the properties in file order, and problems as (line, reason).

    The only problem this format knows is a malformed ``\u`` escape.
    """
    properties: list[Property] = []
    problems: list[tuple[int, str]] = []
    for line, text in _logical_lines(_decode(data)):
        if re.search(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})", text):
            problems.append((line, r"\u needs four hexadecimal digits (write \\ for a backslash)"))
            continue
        found = _SEPARATOR.match(text)
        assert found is not None, "the pattern matches the empty string"
        rest = text[found.end() :].lstrip(_BLANKS)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANKS)
        properties.append(Property(line, _unescape(found.group()), _unescape(rest.rstrip(_BLANKS))))
    return properties, problems


def format_property(key: str, value: str) -> str:
    """One line that :func:`parse_properties` and Java read back as the same pair."""
    escaped = value.translate(_ESCAPED)
    if escaped.startswith(" "):
        escaped = "\\" + escaped
    return f"{key}={escaped}"


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _logical_lines(text: str) -> list[tuple[int, str]]:
    lines: list[tuple[int, str]] = []
    pending: list[str] = []
    start = 0
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = raw.lstrip(_BLANKS)
        if not pending:
            if not line or line[0] in "#!":
                continue
            start = number
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2
        pending.append(line[:-1] if is_continued else line)
        if not is_continued:
            lines.append((start, "".join(pending)))
            pending = []
    if any(pending):
        lines.append((start, "".join(pending)))
    return lines


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_one_escape, text)


def _one_escape(found: re.Match[str]) -> str:
    code = found.group(1)
    if len(code) == 5:
        return chr(int(code[1:], 16))
    return _NAMED.get(code, code)
