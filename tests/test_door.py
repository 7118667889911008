"""A port's places: who comes in, who gives way."""

from collections import Counter
from sys import gettrace, settrace
from types import FrameType
from typing import Any

from rmqha.door import Door


def door(proven: set[str], out: list[str], **changes: Any) -> Door[str]:
    rules: dict[str, Any] = {
        "allow": (),
        "allow_key": "haAllow",
        "places_max": 4,
        "places_per_host_max": 3,
        "hosts_share": False,
    }
    return Door(**{**rules, **changes}, has_proven=proven.__contains__, show_out=out.append)


def come(at: Door[str], *peers: str) -> list[str]:
    """Let each peer in that may come; returns why the others may not."""
    refusals = []
    for peer in peers:
        closed = at.why_closed(peer)
        if closed is None:
            at.admit(peer, peer)
        else:
            refusals.append(closed.reason)
    return refusals


def test_the_oldest_that_has_proven_nothing_gives_way() -> None:
    proven, out = {"10.0.0.1:1"}, list[str]()
    at = door(proven, out)
    assert come(at, "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.4:1", "10.0.0.5:1") == []
    assert out == ["10.0.0.2:1"]
    proven.update(at.guests)
    assert come(at, "10.0.0.6:1") == ["4 connections are open, the limit"]
    assert list(at.guests) == ["10.0.0.1:1", "10.0.0.3:1", "10.0.0.4:1", "10.0.0.5:1"]
    assert at.leave("10.0.0.3:1")
    assert come(at, "10.0.0.6:1") == []


def test_who_comes_from_a_host_that_is_known_gives_way_after_all_strangers() -> None:
    """A slave on its way back, whose TLS handshake takes a while, was let out again by the next that came."""
    out = list[str]()
    at = door(set(), out, knows={"10.0.0.1", "10.0.0.2"}.__contains__)
    assert come(at, "10.0.0.1:1", "10.0.0.3:1", "10.0.0.2:1", "10.0.0.4:1") == []
    assert come(at, "10.0.0.5:1", "10.0.0.6:1") == []
    assert out == ["10.0.0.3:1", "10.0.0.4:1"]
    assert come(at, "10.0.0.1:2", "10.0.0.2:2", "10.0.0.7:1") == []
    assert out[2:] == ["10.0.0.5:1", "10.0.0.6:1", "10.0.0.1:1"]


def test_a_host_at_its_limit_makes_room_among_its_own_connections() -> None:
    proven, out = set[str](), list[str]()
    at = door(proven, out, places_max=10)
    assert come(at, "10.0.0.9:1", "10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3", "10.0.0.1:4") == []
    assert out == ["10.0.0.1:1"]
    proven.update(at.guests)
    assert come(at, "10.0.0.1:5", "10.0.0.2:1") == ["3 connections from 10.0.0.1 are open, the limit"]


def test_who_finds_its_host_at_its_limit_costs_the_same_however_many_others_there_are() -> None:
    """A stranger whom nobody lets in may come a thousand times a second."""
    costs = []
    for others in (1, 300):
        proven, lines = set[str](), 0
        at = door(proven, [], places_max=1000)
        assert (
            come(at, *(f"10.1.{host}.1:1" for host in range(others)), *(f"10.0.0.1:{port}" for port in range(3))) == []
        )
        proven.update(at.guests)

        def count(_frame: FrameType, event: str, _argument: object) -> Any:
            nonlocal lines
            lines += event == "line"
            return count

        before = gettrace()
        settrace(count)
        closed = at.why_closed("10.0.0.1:9")
        settrace(before)
        assert closed is not None
        costs.append(lines)
    assert 0 < costs[0] == costs[1]


def test_hosts_that_took_all_places_make_room_for_others_until_each_has_as_many() -> None:
    """A few hosts whose connections have all asked something kept everybody else out for ever."""
    out = list[str]()
    proven = {f"10.0.0.{host}:{port}" for host in range(1, 9) for port in range(9)}
    at = door(proven, out, places_max=12, places_per_host_max=6, hosts_share=True)
    assert come(at, *(f"10.0.0.{host}:{port}" for port in range(6) for host in (1, 2))) == []
    assert come(at, *(f"10.0.0.3:{port}" for port in range(6))) == ["12 connections are open, the limit"] * 2
    assert sorted(out) == ["10.0.0.1:0", "10.0.0.1:1", "10.0.0.2:0", "10.0.0.2:1"]
    assert come(at, "10.0.0.1:7") == ["12 connections are open, the limit"], "nobody comes back for it"
    assert come(at, *(f"10.0.0.{host}:0" for host in range(4, 9))) == []
    hosts = Counter(at.guests.values())
    assert (sum(hosts.values()), len(hosts), max(hosts.values())) == (12, 8, 3)


def test_a_place_is_given_back_once() -> None:
    at = door(set(), [], places_per_host_max=1)
    assert come(at, "[fd00::1]:7") == []
    assert [at.leave("[fd00::1]:7"), at.leave("[fd00::1]:7")] == [True, False]
    assert come(at, "[fd00::1]:8") == []
    assert at.guests == {"[fd00::1]:8": "fd00::1"}


def test_only_listed_networks_come_in_and_nobody_gives_way_to_others() -> None:
    out = list[str]()
    at = door(set(), out, allow=("10.0.0.0/8", "fd00::/16"), places_max=1)
    assert come(at, "10.1.2.3:1", "192.168.0.1:1") == ["192.168.0.1 is in none of the networks of haAllow"]
    closed = at.why_closed("192.168.0.1:1")
    assert closed is not None
    assert not closed.is_listed
    assert out == []
    assert come(at, "[fd00::1]:1") == []
    assert out == ["10.1.2.3:1"]
