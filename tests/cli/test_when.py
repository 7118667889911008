from datetime import datetime

import pytest

from rmqha.cli.when import End, Last, Offset, Place, Start, Time, parse_place

NOW_MS = 1_795_174_284_839


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("start", Start()),
        ("end", End()),
        ("-1", Last(1)),
        ("-250", Last(250)),
        ("0", Offset(0)),
        ("77", Offset(77)),
        ("@1795174284839", Time(1_795_174_284_839)),
        ("@-90s", Time(NOW_MS - 90_000)),
        ("@-15m", Time(NOW_MS - 900_000)),
        ("@-2d", Time(NOW_MS - 2 * 86_400_000)),
        ("@2026-11-21T10:00:30.5+00:00", Time(1_795_255_230_500)),
        ("@2026-11-21T10:00Z", Time(1_795_255_200_000)),
        ("@2026-11-21", Time(round(datetime(2026, 11, 21).timestamp() * 1000))),  # noqa: DTZ001 - local time is meant
    ],
)
def test_the_grammar(text: str, expected: Place) -> None:
    assert parse_place(text, now_ms=NOW_MS) == expected


@pytest.mark.parametrize("text", ["", "begin", "@", "@yesterday", "@-5", "-", "--1", "1.5", "@2026-13-01", "²", "-1x"])
def test_anything_else_is_refused_with_the_forms_that_are_meant(text: str) -> None:
    with pytest.raises(ValueError, match=r"@?2026-11-21T10:00"):
        parse_place(text, now_ms=NOW_MS)
