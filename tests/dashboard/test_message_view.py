"""A message as the page shows it: bounded, as text or as a dump."""

from typing import Any

import pytest

from rmqha.client.message import read_message
from rmqha.codec.record.message import decode_message
from rmqha.dashboard.message_view import BODY_SIZE_MAX, message_view
from tests.dashboard.fakes import record


def shown(body: bytes, **how: str) -> dict[str, Any]:
    return message_view(read_message(decode_message(record(body, **how), 0), "a", body_size_max=1 << 24))


def test_facts_and_properties_are_told() -> None:
    told = shown("grüße".encode())
    assert (told["topic"], told["queue"], told["queueOffset"], told["offset"]) == ("orders", 1, 3, 300)
    assert (told["keys"], told["tags"], told["bornMs"], told["storedMs"]) == ("k1 k2", "new", 1_000_000, 1_000_001)
    assert ["KEYS", "k1 k2"] in told["properties"]
    assert (told["bodyKind"], told["body"], told["bodySize"], told["bodyShown"]) == ("text", "grüße", 7, 7)
    assert shown(b"")["body"] == ""


@pytest.mark.parametrize("body", [b"\x00\x01abc~\xff", b"\x1b[2J", b"\x80"])
def test_what_is_no_text_is_a_dump(body: bytes) -> None:
    told = shown(body)
    assert (told["bodyKind"], told["bodyShown"]) == ("hex", len(body))
    assert told["body"].startswith(f"00000000  {body.hex(' ')}")


def test_a_dump_has_sixteen_bytes_a_line_and_their_ascii() -> None:
    told = shown(bytes(range(32, 50)) + b"\x00")
    assert told["body"].splitlines() == [
        "00000000  20 21 22 23 24 25 26 27 28 29 2a 2b 2c 2d 2e 2f   !\"#$%&'()*+,-./",
        "00000010  30 31 00                                         01.",
    ]


def test_a_large_body_is_cut_also_amid_a_character() -> None:
    told = shown(b"x" + "é".encode() * BODY_SIZE_MAX)
    assert (told["bodyKind"], told["bodyShown"], told["bodySize"]) == ("text", BODY_SIZE_MAX, 2 * BODY_SIZE_MAX + 1)
    assert told["body"].endswith("éé")
    assert len(shown(b"\xff" * 300_000)["body"]) < 100_000


def test_properties_are_cut() -> None:
    told = shown(b"x", properties="\x02".join(f"p{number}\x01{'v' * 100}" for number in range(300)))
    assert len(told["properties"]) == 128
    (_, value), *_ = shown(b"x", properties="p\x01" + "v" * 30_000)["properties"]
    assert len(value) == 4096


def test_why_a_body_is_not_there_is_told() -> None:
    message = read_message(decode_message(record(b"x"), 0), "a", body_size_max=1 << 24)
    assert message_view(message)["bodyProblem"] == ""
    broken = message._replace(body_problem="it cannot be inflated")
    assert message_view(broken)["bodyProblem"] == "it cannot be inflated"


def test_no_control_character_is_in_a_dump() -> None:
    assert shown(bytes((0, 31, 32, 126, 127, 128)))["body"].endswith("   .. ~..")
