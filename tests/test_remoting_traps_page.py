"""docs/remoting-traps.md has all traps and invariants of the protocol, each with its test."""

import pytest

from tests.test_reliability_page import NAMED, ROOT, missing_tests

PAGE = ROOT / "docs" / "remoting-traps.md"


def rows_of(section: str) -> list[list[str]]:
    body = PAGE.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines() if line[:2] == "| "]
    return rows[2:]


def test_every_named_test_exists() -> None:
    assert missing_tests(PAGE.read_text()) == []


@pytest.mark.parametrize(
    ("section", "numbers"),
    [("Traps", [str(number) for number in range(1, 54)]), ("Invariants", [f"I{number}" for number in range(1, 16)])],
)
def test_each_number_has_a_test(section: str, numbers: list[str]) -> None:
    rows = rows_of(section)
    assert [row[0] for row in rows] == numbers
    assert [row for row in rows if not NAMED.search(row[-1])] == []
