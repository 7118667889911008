"""Which brokers there are: who comes, who goes, who tells topics, and how much of it one host may fill."""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from rmqha.codec.register_broker import NO_TOPICS, DataVersion
from rmqha.codec.route import QueueData
from rmqha.errors import RemoteProtocolError
from rmqha.namesrv import route_info_manager
from rmqha.namesrv.route_info_manager import RouteInfoManager
from rmqha.namesrv.routes import Registration, pickup_topic_route_data


@dataclass(eq=False)
class Wire:
    """A broker's connection."""

    peer: str = "10.0.0.1:5"
    closed: list[str] = field(default_factory=list)

    def close(self, reason: str) -> None:
        self.closed.append(reason)


MASTER = Registration("c", "a", 0, "10.0.0.1:10911", "10.0.0.1:10912", DataVersion(1, 1))
SLAVE = Registration("c", "a", 1, "10.0.0.2:10911", "10.0.0.2:10912")


def queues(name: str = "a", **changes: Any) -> QueueData:
    return replace(QueueData(name, 4, 4, 6), **changes)


class Names:
    """A manager, and the connections of its brokers."""

    def __init__(self) -> None:
        self.manager = RouteInfoManager()
        self.now = 0.0

    def register(self, registration: Registration, *topics: str, wire: Wire | None = None) -> tuple[Wire, Any]:
        wire = wire or Wire(registration.broker_addr)
        told = {topic: queues(registration.broker_name) for topic in topics}
        found = self.manager.register_broker(registration, told, connection=wire, now=self.now)
        return wire, (found.master_addr, found.ha_server_addr)

    def addresses(self, topic: str) -> dict[int, str]:
        """Of the group that has the topic."""
        route = pickup_topic_route_data(self.manager, topic)
        return {} if route is None else route.broker_datas[0].broker_addrs


@pytest.fixture
def names() -> Names:
    return Names()


async def test_a_master_and_its_slave(names: Names) -> None:
    assert names.register(SLAVE, "ignored")[1] == (None, None), "it has no master yet"
    wire, found = names.register(MASTER, "t", "u")
    assert found == (None, None)
    assert names.register(SLAVE)[1] == ("10.0.0.1:10911", "10.0.0.1:10912")
    assert names.addresses("t") == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}
    assert names.addresses("ignored") == {}
    names.manager.connection_closed(wire)
    assert names.addresses("t") == {1: "10.0.0.2:10911"}, "a slave keeps the routes"
    names.manager.unregister_broker(SLAVE)
    assert names.addresses("t") == {}
    assert list(names.manager.groups()) == []


async def test_topics_are_told_once_and_stay(names: Names) -> None:
    names.register(MASTER, "t")
    names.register(MASTER, "not looked at")
    assert names.addresses("not looked at") == {}
    names.register(replace(MASTER, data_version=DataVersion(1, 2)), "u")
    assert names.addresses("t") == names.addresses("u") != {}
    names.manager.delete_topic("t", cluster="another")
    assert names.addresses("t")
    names.manager.delete_topic("t", cluster=None)
    assert names.addresses("t") == {}


async def test_a_slave_that_becomes_master_is_no_slave_any_more(names: Names) -> None:
    names.register(MASTER, "t")
    names.register(SLAVE)
    names.register(replace(SLAVE, broker_id=0, data_version=DataVersion(2, 2)), "v")
    assert names.addresses("t") == {0: "10.0.0.2:10911"}
    assert names.addresses("v") == {0: "10.0.0.2:10911"}


async def test_a_new_master_tells_topics_though_it_had_the_same_as_a_slave(names: Names) -> None:
    """RocketMQ's slaves register with their master's version; nothing that they told then was taken."""
    slave = replace(SLAVE, data_version=MASTER.data_version)
    names.register(slave, "t")
    assert names.addresses("t") == {}
    names.register(replace(slave, broker_id=0), "t")
    assert names.addresses("t") == {0: "10.0.0.2:10911"}


async def test_the_end_of_a_former_connection_forgets_nobody(names: Names) -> None:
    former, _ = names.register(MASTER, "t")
    names.register(MASTER, wire=Wire("10.0.0.1:6"))
    names.manager.connection_closed(former)
    assert names.addresses("t")


async def test_the_end_of_a_connection_forgets_all_who_registered_on_it(names: Names) -> None:
    """A proxy may bring several, and who tells of itself at another address has its former one there, too."""
    wire, _ = names.register(MASTER, "t")
    for registration in (SLAVE, replace(MASTER, broker_name="b", broker_addr="10.0.0.1:20911")):
        names.register(registration, "u", wire=wire)
    names.manager.connection_closed(wire)
    assert list(names.manager.groups()) == []


async def test_the_end_of_a_broker_whose_place_another_took_forgets_nobody(names: Names) -> None:
    former, _ = names.register(MASTER, "t")
    names.register(replace(MASTER, broker_addr="10.0.0.3:10911"), "t")
    names.manager.connection_closed(former)
    assert names.addresses("t") == {0: "10.0.0.3:10911"}


async def test_a_broker_with_another_name_is_no_other_broker(names: Names) -> None:
    names.register(MASTER, "t")
    names.register(replace(MASTER, broker_name="b"), "u")
    assert names.addresses("t") == {}
    assert names.addresses("u") == {0: "10.0.0.1:10911"}


async def test_only_the_broker_itself_says_goodbye(names: Names) -> None:
    names.register(MASTER, "t")
    names.manager.unregister_broker(replace(MASTER, broker_addr="10.0.0.9:10911"))
    names.manager.unregister_broker(replace(MASTER, broker_name="b"))
    assert names.addresses("t")


async def test_silent_brokers_are_forgotten_after_two_minutes(names: Names) -> None:
    silent, _ = names.register(MASTER, "t")
    names.now = 100.0
    alive, _ = names.register(SLAVE)
    assert names.manager.query_data_version(replace(MASTER, data_version=DataVersion(9, 9)), now=100.0) == (1, 1)
    assert not [*names.manager.scan_not_active_broker(now=120.0)]
    assert 0 in names.addresses("t")
    assert not [*names.manager.scan_not_active_broker(now=120.1)]
    assert names.addresses("t") == {1: "10.0.0.2:10911"}
    assert (len(silent.closed), alive.closed) == (1, [])
    assert names.manager.query_data_version(SLAVE, now=200.0) == (0, 0)
    assert not [*names.manager.scan_not_active_broker(now=300.0)]
    assert 1 in names.addresses("t"), "to ask for the version of topics that are the same is a sign of life"
    assert names.manager.query_data_version(MASTER, now=200.0) is None


async def test_write_permission_is_taken_away_and_given_back(names: Names) -> None:
    names.register(MASTER, "t", "u")

    def perm() -> set[int]:
        found = names.manager.find("a")
        assert found is not None
        return {queue.perm for _, queue in found.topics()}

    assert list(names.manager.change_write_perm("a", writable=False))[-1] == 2
    assert perm() == {4}
    names.register(MASTER, "t", "u")
    assert perm() == {4}, "the same registration again changes nothing"
    assert list(names.manager.change_write_perm("a", writable=True))[-1] == 2
    assert perm() == {6}
    assert list(names.manager.change_write_perm("nobody", writable=False)) == [0]


async def test_a_group_has_so_many_brokers_and_no_more(names: Names) -> None:
    """A route names them all, to each client that asks."""
    slaves = [replace(SLAVE, broker_id=number, broker_addr=f"10.6.6.6:{number}") for number in range(1, 65)]
    for slave in slaves:
        names.register(slave)
    with pytest.raises(RemoteProtocolError, match="64 brokers"):
        names.register(MASTER, "t")
    names.register(replace(slaves[5], broker_addr="10.0.0.3:7"))
    names.register(replace(slaves[6], broker_id=70))
    names.manager.unregister_broker(slaves[0])
    names.register(MASTER, "t")
    assert len(names.addresses("t")) == 64


async def test_one_host_leaves_room_for_others_and_gives_back_what_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_info_manager, "SIZE_MAX", 1024 * 1024)
    names = Names()
    taken = 0
    with suppress(RemoteProtocolError):
        while True:
            registration = replace(MASTER, broker_name=f"n{taken}", broker_addr=f"10.6.6.6:{taken}")
            names.register(registration, wire=Wire("10.6.6.6:1"))
            taken += 1
    assert 5 < taken < 10, "each name costs"
    with pytest.raises(RemoteProtocolError, match=r"10\.6\.6\.6 register fills"):
        names.register(replace(MASTER, broker_name="one more"), wire=Wire("10.6.6.6:1"))
    wire, _ = names.register(MASTER, "t")
    assert names.addresses("t")
    names.register(replace(MASTER, data_version=DataVersion(1, 2)), *(f"topic{n}" for n in range(500)), wire=wire)
    names.register(replace(MASTER, data_version=DataVersion(1, 3)), *(f"more{n}" for n in range(5000)), wire=wire)
    assert names.addresses("more4999") == {}
    assert names.addresses("topic1")
    names.manager.unregister_broker(MASTER)
    for number in range(taken):
        names.manager.unregister_broker(replace(MASTER, broker_name=f"n{number}", broker_addr=f"10.6.6.6:{number}"))
    for number in range(taken):
        registration = replace(MASTER, broker_name=f"n{number}", broker_addr=f"10.7.7.7:{number}")
        names.register(registration, wire=Wire("10.7.7.7:1"))


async def test_topics_without_room_are_left_out_and_the_broker_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """One topic too many took a broker and all its topics out of the routes, as long as others filled the room."""
    monkeypatch.setattr(route_info_manager, "SIZE_MAX", 1024 * 1024)
    names = Names()
    known = [f"topic{n}" for n in range(500)]
    version = DataVersion(1, 2)
    wire, _ = names.register(replace(MASTER, data_version=version), *known)
    assert names.manager.query_data_version(MASTER, now=0.0) == version
    more = [f"more{n}" for n in range(5000)]
    with capture_logs() as lines:
        names.register(replace(MASTER, data_version=DataVersion(1, 3)), *known, *more, wire=wire)
    (line,) = [line for line in lines if line["event"] == "route_info.topics_left_out"]
    assert (line["broker_name"], "register fills" in line["reason"]) == (MASTER.broker_name, True)
    kept = [topic for topic in more if names.addresses(topic)]
    assert kept == more[: len(kept)]
    assert 0 < len(kept) == len(more) - line["count"] < 2000, "half of what is free"
    assert all(names.addresses(topic) for topic in known)
    assert names.manager.query_data_version(MASTER, now=0.0) == NO_TOPICS, "it is to tell them again"
    for topic in known:
        names.manager.delete_topic(topic, cluster=None)
    names.register(replace(MASTER, data_version=DataVersion(1, 3)), *more, wire=wire)
    assert len([topic for topic in more if names.addresses(topic)]) > len(kept), "some had room meanwhile"


async def test_what_was_left_out_is_asked_for_until_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that fits, of a later version, is not all of it: RocketMQ's brokers tell a changed topic alone."""
    monkeypatch.setattr(route_info_manager, "SIZE_MAX", 1024 * 1024)
    names = Names()
    other = replace(MASTER, broker_name="b", broker_addr="10.0.0.9:10911")
    names.register(replace(other, data_version=DataVersion(1, 1)), *(f"other{n}" for n in range(1200)))
    topics = [f"topic{n}" for n in range(1500)]
    wire, _ = names.register(replace(MASTER, data_version=DataVersion(1, 2)), *topics)
    assert names.addresses("topic0")
    assert not names.addresses("topic1499")
    names.manager.unregister_broker(other)
    later = replace(MASTER, data_version=DataVersion(1, 3))
    names.register(later, "topic7", wire=wire)
    assert names.manager.query_data_version(later, now=0.0) == NO_TOPICS
    names.register(later, *topics, wire=wire)
    assert all(names.addresses(topic) for topic in topics)
    assert names.manager.query_data_version(later, now=0.0) == DataVersion(1, 3)


async def test_of_a_broker_that_has_no_room_itself_nothing_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route_info_manager, "SIZE_MAX", 100 * 1024)
    names = Names()
    with pytest.raises(RemoteProtocolError, match="not registered"):
        names.register(MASTER, "t")
    assert not names.addresses("t")


@pytest.mark.parametrize(("size", "count"), [(1, 300), (200, 80)])
async def test_a_deleted_topic_gives_back_its_room(size: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers stay for months, and topics come and go meanwhile; of those with long names, the names too."""
    monkeypatch.setattr(route_info_manager, "SIZE_MAX", 512 * 1024)
    names = Names()
    for version in range(10):
        topics = [f"topic{version}_{number}".ljust(size, "x") for number in range(count)]
        names.register(replace(MASTER, data_version=DataVersion(1, version)), *topics)
        for topic in topics:
            names.manager.delete_topic(topic, cluster=None)
    names.register(replace(MASTER, data_version=DataVersion(2, 0)), "t")
    assert names.addresses("t")


async def test_a_broker_counts_once_however_often_it_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each does every 30 s, and a slave may come and go."""
    monkeypatch.setattr(route_info_manager, "SIZE_MAX", 512 * 1024)
    names = Names()
    names.register(MASTER, "t")
    for _ in range(200):
        names.register(MASTER)
        names.register(SLAVE)
        names.manager.unregister_broker(SLAVE)
    names.register(SLAVE)
    assert names.addresses("t") == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}


OTHER_MASTER = replace(MASTER, broker_addr="10.0.0.3:10911", ha_server_addr="10.0.0.3:10912")


class TakingTurns:
    """Brokers that register every 30 s, each on the connection that it has."""

    def __init__(self, names: Names, *brokers: Registration) -> None:
        self._names = names
        self._wires = {broker: Wire(broker.broker_addr) for broker in brokers}

    def register(self, times: int) -> list[Any]:
        with capture_logs() as logs:
            for _ in range(times):
                for broker, wire in self._wires.items():
                    self._names.now += 30 / len(self._wires)
                    self._names.register(broker, wire=wire)
        return [log for log in logs if log["event"] == "route_info.brokers_clash"]


@pytest.mark.parametrize("first", [MASTER, SLAVE])
async def test_two_brokers_of_one_id_are_told_and_counted(names: Names, first: Registration) -> None:
    """Not before one has taken its place back from the other, and that one from it; then once a minute."""
    both = TakingTurns(names, first, replace(first, broker_addr="10.0.0.3:10911"))
    assert both.register(1) == []
    assert names.manager.clashes == 0
    warnings = both.register(10)
    assert names.manager.clashes == 19
    assert len(warnings) in (5, 6), "of five minutes"
    assert warnings[0]["addresses"] == sorted([first.broker_addr, "10.0.0.3:10911"])
    assert (warnings[0]["broker_name"], warnings[0]["broker_id"]) == ("a", first.broker_id)


@pytest.mark.parametrize("count", [3, 5, 8])
async def test_more_than_two_brokers_of_one_id_are_told_and_counted(names: Names, count: int) -> None:
    """As of a file that was copied to many hosts: the last one that lost the place is never the one that comes."""
    all_of_them = TakingTurns(names, *[replace(MASTER, broker_addr=f"10.0.1.{host}:10911") for host in range(count)])
    assert all_of_them.register(1) == []
    assert names.manager.clashes == 0
    warnings = all_of_them.register(10)
    assert names.manager.clashes >= 9 * count
    assert len(warnings) in (4, 5, 6), "of five minutes"


async def test_of_very_many_brokers_of_one_id_the_last_are_remembered(names: Names) -> None:
    TakingTurns(names, *[replace(MASTER, broker_addr=f"10.0.1.{host}:10911") for host in range(50)]).register(10)
    assert names.manager.clashes == 0


async def test_many_names_that_clash_do_not_fill_the_log(names: Names) -> None:
    pairs = [
        [replace(MASTER, broker_name=f"b{number}", broker_addr=f"10.0.{host}.{number}:1") for host in (1, 2)]
        for number in range(100)
    ]
    warnings = [line for pair in pairs for line in TakingTurns(names, *pair).register(2)]
    assert names.manager.clashes == 100
    assert 0 < len(warnings) < 30


async def test_a_broker_that_moves_clashes_with_nobody(names: Names) -> None:
    """To another address and back, with a new connection each time; also if the former process registers once more."""
    former, _ = names.register(MASTER)
    for _ in range(3):
        names.register(OTHER_MASTER, wire=Wire(f"10.0.0.3:{names.now:g}"))
        names.now += 10
        names.register(MASTER, wire=Wire(f"10.0.0.1:{names.now:g}"))
        names.now += 10
    names.register(OTHER_MASTER, wire=(moved := Wire("10.0.0.3:7")))
    names.register(MASTER, wire=former)
    names.register(OTHER_MASTER, wire=moved)
    assert names.manager.clashes == 0


async def test_a_leadership_that_wanders_is_no_clash(names: Names) -> None:
    """A member that leads no more is there by its own id before it leads again, or long after."""
    members = {member: Wire(f"10.0.0.{member}:5") for member in (1, 2)}
    for turn in range(10):
        leader = 1 + turn % 2
        for member, broker_id in ((leader, 0), (3 - leader, 3 - leader)):
            address = f"10.0.0.{member}:10911"
            names.register(replace(MASTER, broker_id=broker_id, broker_addr=address), wire=members[member])
        names.now += 5
    assert names.manager.clashes == 0


@pytest.mark.parametrize(("after_s", "clashes"), [(140, 3), (160, 0)])
async def test_a_place_that_was_lost_long_ago_says_nothing(names: Names, after_s: float, clashes: int) -> None:
    """A leader comes back after minutes, on the connection that it had: who is there at once registers every minute."""
    wires = {MASTER: Wire("10.0.0.1:5"), OTHER_MASTER: Wire("10.0.0.3:5")}
    for turn in range(6):
        broker = (MASTER, OTHER_MASTER)[turn % 2]
        names.register(broker, wire=wires[broker])
        names.now += after_s
    assert names.manager.clashes == clashes


async def test_places_that_are_lost_are_forgotten(names: Names) -> None:
    """Whatever ids are made up."""
    for broker_id in range(1, 1000):
        for host in (1, 2):
            who = replace(SLAVE, broker_id=broker_id, broker_addr=f"10.0.{host}.{broker_id % 250}:{broker_id}")
            wire, _ = names.register(who)
        names.manager.connection_closed(wire)
        names.register(MASTER)
    [group] = names.manager.groups()
    assert len(group.displaced) == 64
