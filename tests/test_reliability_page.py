"""docs/reliability.md names the test behind each promise; a test that was renamed or removed is a promise unkept."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reliability.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@cache
def defined_in(path: str) -> set[str]:
    """The test functions that a file defines."""
    tree = ast.parse((ROOT / path).read_text())
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {function.name for function in functions if function.name.startswith("test_")}


def missing_tests(text: str) -> list[str]:
    """What the text names and the tree does not have."""
    return [
        f"{path}::{name}"
        for path, name in NAMED.findall(text)
        if not (ROOT / path).is_file() or (name and name not in defined_in(path))
    ]


def test_every_named_test_exists() -> None:
    text = PAGE.read_text()
    assert len(NAMED.findall(text)) > 50
    assert missing_tests(text) == []


@pytest.mark.parametrize("section", ["What is promised", "What RocketMQ's users met"])
def test_every_row_names_a_test_or_says_that_there_is_none(section: str) -> None:
    """A row without a test is one that says "open", "not applicable" or "none"."""
    body = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = [line for line in body.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    tables = body.count("\n| ---")
    silent = [row for row in rows if not NAMED.search(row) and not re.search(r"\b(open|not applicable|none)\b", row)]
    assert len(rows) > tables > 0
    assert len(silent) == tables, f"besides the headings: {silent}"


def test_a_name_that_is_none_is_noticed() -> None:
    good, bad = "`tests/test_reliability_page.py::test_every_named_test_exists`", "`tests/test_no.py::test_no`"
    wrong = good.replace("exists", "exits")
    assert missing_tests(f"{good} {bad} {wrong}") == [bad.strip("`"), wrong.strip("`")]
