"""ProducerManager: who is asked for a group."""

from typing import Any

import pytest

from rmqha.broker.clients.client_channel_info import ClientChannelInfo
from rmqha.broker.clients.producer_manager import ProducerManager
from rmqha.errors import RemoteProtocolError
from tests.reachable import count_entries


class Member:
    def __init__(self, *, takes_answers: bool = True) -> None:
        self.takes_answers = takes_answers


def register(producers: ProducerManager, group: str, member: Any, *, peer: str = "") -> None:
    producers.register(group, ClientChannelInfo(member, "c", peer))


def test_members_are_asked_in_their_turn() -> None:
    producers = ProducerManager()
    members: list[Any] = [Member() for _ in range(3)]
    for member in members:
        register(producers, "g", member)
    asked = [producers.any_connection("g") for _ in range(7)]
    assert asked == [*members, *members, members[0]]
    assert producers.any_connection("other") is None


def test_who_takes_no_answers_is_passed_over() -> None:
    producers = ProducerManager()
    deaf: Any = Member(takes_answers=False)
    member: Any = Member()
    register(producers, "g", deaf)
    assert producers.any_connection("g") is deaf, "there is nobody else"
    register(producers, "g", member)
    assert [producers.any_connection("g") for _ in range(3)] == [member] * 3


def test_a_look_passes_over_more_of_them_than_are_tried_at_once() -> None:
    """Of four, three of whom had answers to take, the last was not asked for a quarter of an hour."""
    producers = ProducerManager()
    deaf: list[Any] = [Member(takes_answers=False) for _ in range(3)]
    member: Any = Member()
    for one in (*deaf, member):
        register(producers, "g", one)
    assert producers.any_connection("g", is_used=False) is deaf[0]
    assert [producers.any_connection("g", is_used=False) for _ in range(2)] == [member] * 2


def test_nothing_is_left_of_who_has_left() -> None:
    producers = ProducerManager()
    members: list[Any] = [Member() for _ in range(3)]
    for member in members * 2:
        for group in ("g", "h"):
            register(producers, group, member, peer="10.0.0.1:1")
    producers.unregister("g", members[0])
    producers.unregister("g", members[0])
    assert (len(producers.members("g")), len(producers.members("h"))) == (2, 3)
    for member in members:
        producers.forget_member(member)
    assert not any(map(producers.is_member, members))
    assert count_entries(producers) == count_entries(ProducerManager())


def test_a_client_is_found_by_the_connection_that_said_last_that_it_is() -> None:
    """After it has connected again the one before may be dead, and be told only minutes later that it is."""
    producers = ProducerManager()
    members: list[Any] = [Member() for _ in range(3)]
    for member in members:
        register(producers, "g", member)
    found = []
    for member in reversed(members):
        found.append(producers.find_connection("c"))
        producers.forget_member(member)
    assert found == members[::-1]
    assert producers.find_connection("c") is None


def test_a_heartbeat_makes_no_connection_a_newer_one() -> None:
    """One that is about to be closed may still have one on its way."""
    producers = ProducerManager()
    members: list[Any] = [Member() for _ in range(3)]
    for member in [*members, members[0], members[1], members[0]]:
        register(producers, "g", member)
    found = producers.find_connection("c")
    assert members.index(found) == 2
    producers.forget_member(members[2])
    found = producers.find_connection("c")
    assert members.index(found) == 1


def fill(producers: ProducerManager, name: str) -> None:
    for number in range(10_000):
        register(producers, f"{name}{number}", Member(), peer="10.0.0.1:1")


def test_no_host_fills_the_table_of_producers() -> None:
    producers = ProducerManager()
    name = "g" * 10_000
    with pytest.raises(RemoteProtocolError, match=r"what groups produce of clients of 10\.0\.0\.1 fills"):
        fill(producers, name)
    register(producers, name, Member(), peer="10.0.0.2:1")
