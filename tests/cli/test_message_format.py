"""`rmqha tail --format '%t ...'`, and where `rmqha tail` begins."""

from typing import Any

import pytest

from rmqha.cli.errors import CliError
from rmqha.cli.main import run
from rmqha.cli.message_format import parse_format
from rmqha.cli.tail_messages import TailPlan
from rmqha.cli.when import End, Last, Start
from tests.cli.test_tail_messages import Q1, message

Output = pytest.CaptureFixture[str]
ONE = message(Q1, 7, keys=("a", "b"), tags="new", properties={"x": "1", "y": "2\n"}, body=b"one\x1b\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("%t %p %o %k %s\\n", "t 1 7 a b one\\x1b\\n\n"),
        ("%S|%T|%P|%%|%i|%b|%a", "5|1015|15|%|id|b|new"),
        ("%h\\t\\r\\\\", "x=1,y=2\\n\t\r\\"),
        ("\\x41%%n\\x7c", "A%n|"),
        ("100%% of %t", "100% of t"),
    ],
)
def test_a_line_is_made_as_it_is_wanted(text: str, line: str) -> None:
    """Of what a message holds nothing ends a line, or reaches the terminal."""
    assert parse_format(text)(ONE) == line


def test_a_message_without_keys_and_tag_leaves_blanks() -> None:
    assert parse_format("<%k%a%h>")(message(Q1, 0)) == "<>"


@pytest.mark.parametrize(
    ("text", "told"), [("%q", "'%q' means nothing"), ("%t %", "'%' means"), ("\\y%t", "'\\\\y'"), ("%t\\x4", "\\\\x")]
)
def test_what_means_nothing_is_refused_with_what_there_is(text: str, told: str, capsys: Output) -> None:
    assert run(["tail", "t", "--format", text]) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert told in err
    assert "there are" in err


def test_a_format_is_text_json_or_has_a_percent_sign(capsys: Output) -> None:
    assert run(["tail", "t", "--format", "xml"]) == 2
    assert "neither text nor json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "start", "limit"),
    [
        ([], Last(10), None),
        (["-n", "3"], Last(3), None),
        (["-n", "30", "-f"], Last(30), None),
        (["--from", "-10", "-n", "3"], Last(10), 3),
        (["--from", "start", "-n", "3"], Start(), 3),
        (["--from", "end", "-f", "-n", "3"], End(), 3),
    ],
)
def test_a_number_alone_is_that_of_the_last_messages(
    arguments: list[str], start: object, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-n 3` were the first three of the last ten."""
    plans: list[TailPlan] = []

    async def tail(plan: TailPlan) -> CliError | None:
        plans.append(plan)
        return None

    def wait(*_arguments: Any) -> None: ...

    monkeypatch.setattr("rmqha.cli.tail_messages.tail_messages", tail)
    monkeypatch.setattr("rmqha.cli.stored.wait_stored_is_seen", wait)
    assert run(["tail", "t", *arguments]) == 0
    assert [(plan.start, plan.limit) for plan in plans] == [(start, limit)]
    assert plans[0].output(ONE) == "one\\x1b\\n\n"
