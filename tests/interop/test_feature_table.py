"""The table after the interop tests."""

from tests.interop.feature_table import FAILED, SKIPPED, WORKS, Peer, Tried, lines_of


def test_what_failed_once_has_failed_and_what_was_not_tried_is_blank() -> None:
    old, new, other = Peer("Clients", "4"), Peer("Clients", "5"), Peer("Servers", "broker")
    tried = [
        Tried(new, "push", FAILED),
        Tried(old, "pull", WORKS),
        Tried(new, "push", WORKS),
        Tried(other, "lead", SKIPPED),
    ]
    assert [line.split() for line in lines_of(tried)] == [
        ["Clients", "4", "5"],
        ["push", "FAILED"],
        ["pull", "works"],
        [],
        ["Servers", "broker"],
        ["lead", "skipped"],
        [],
    ]
    columns = [line.find(word) for line, word in zip(lines_of(tried), ("5", "FAILED"), strict=False)]
    assert columns[0] == columns[1]
