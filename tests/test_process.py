"""What every server does as a process, but for what only a real one shows (tests/e2e)."""

import os

import pytest

from rmqha import process


def test_processes_of_the_same_id_draw_different_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """In containers all have the id 1: two members whose leader was gone voted for themselves at the same moments."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    first, second = process.chance(), process.chance()
    assert [first() for _ in range(3)] != [second() for _ in range(3)]
