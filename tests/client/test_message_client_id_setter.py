"""Ids are unique, and carry what RocketMQ's carry."""

from datetime import UTC, datetime

from rmqha.client.message_client_id_setter import MessageClientIDSetter


def ms(*date: int) -> int:
    return int(datetime(*date, tzinfo=UTC).timestamp() * 1000)  # type: ignore[arg-type,misc]


def test_the_fields_of_an_id() -> None:
    now_ms = ms(2026, 11, 20) + 5
    ids = MessageClientIDSetter(ip="10.45.0.1", pid=0x12345, process_hash=0xCAFE, now_ms=lambda: now_ms)
    text, at = ids.create_uniq_id()
    assert (text, at) == ("0A2D0001" + "2345" + "0000CAFE" + f"{19 * 86_400_000 + 5:08X}" + "0001", now_ms)


def test_ids_stay_unique_over_the_turn_of_a_year() -> None:
    times = iter([ms(2026, 12, 31, 23, 59, 59), ms(2026, 12, 31, 23, 59, 59), ms(2027, 1, 1), ms(2027, 1, 1) + 1])
    ids = MessageClientIDSetter(ip="127.0.0.1", pid=1, process_hash=2, now_ms=lambda: next(times))
    made = [ids.create_uniq_id()[0] for _ in range(4)]
    assert len(set(made)) == 4
    assert made[2][20:] == "000000000003"
    assert all(len(text) == 32 for text in made)


def test_65536_ids_of_one_millisecond_are_unique() -> None:
    ids = MessageClientIDSetter(ip="127.0.0.1", pid=1, process_hash=2, now_ms=lambda: 1_763_700_000_000)
    assert len({ids.create_uniq_id()[0] for _ in range(65536)}) == 65536


def test_the_counter_begins_again_behind_the_last_one_that_has_room() -> None:
    """A longer id is none: it cannot be taken apart."""
    ids = MessageClientIDSetter(ip="127.0.0.1", pid=1, process_hash=2, now_ms=lambda: 1_763_700_000_000)
    *_, last, first, second = [ids.create_uniq_id()[0] for _ in range(65537)]
    assert [text[28:] for text in (last, first, second)] == ["FFFF", "0000", "0001"]
