"""`rmqha doctor` of a member of a DLedger group: whom its dLegerPeers leads to."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from rmqha.cli.doctor_members import check_members
from rmqha.cli.finding import Finding
from rmqha.codec.codes import RequestCode
from rmqha.codec.dledger_wire import MemberStatus, MetadataResponse
from rmqha.config import BrokerConfig, load_config
from rmqha.dledger.dledger_client import DLedgerClient
from rmqha.errors import MQBrokerError, RemotingConnectError, RmqhaError
from tests.cli.fake_brokers import FakeBrokers, runtime
from tests.cli.test_doctor_addresses import NAME_SERVER

PEERS = {"n0": "10.0.0.1:40911", "n1": "10.0.0.2:40911", "n2": "10.0.0.3:40911"}
GOOD = MetadataResponse(200, "n0", PEERS)


def config(**settings: str) -> BrokerConfig:
    of_group = {
        "enableDLegerCommitLog": "true",
        "dLegerGroup": "g",
        "dLegerSelfId": "n0",
        "allowInsecure": "true",
        "dLegerPeers": ";".join(f"{peer}-{address}" for peer, address in PEERS.items()),
    }
    return load_config(None, of_group | settings)


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> dict[str, MetadataResponse | RmqhaError]:
    """What each says; change it."""
    says: dict[str, MetadataResponse | RmqhaError] = {"n1": GOOD, "n2": GOOD}

    async def metadata(_client: DLedgerClient, member_id: str, *, timeout_s: float) -> MetadataResponse:
        told = says[member_id]
        if isinstance(told, RmqhaError):
            raise told
        return told

    monkeypatch.setattr(DLedgerClient, "metadata", metadata)
    return says


def told_of(findings: Iterator[Finding]) -> list[tuple[str, str]]:
    return [(one.level, one.what) for one in findings if one.area == "dLegerPeers"]


def test_members_with_the_same_list_are_good(members: dict[str, MetadataResponse | RmqhaError]) -> None:
    members["n2"] = replace(GOOD, peers=PEERS | {"n2": "0.0.0.0:40911"})
    assert told_of(check_members(config(), timeout_s=1)) == [
        ("ok", "n1 at 10.0.0.2:40911: a member of group g with the same list"),
        ("ok", "n2 at 10.0.0.3:40911: a member of group g with the same list"),
    ]
    assert told_of(check_members(load_config(None), timeout_s=1)) == []


def test_the_clocks_of_the_members_brokers_are_compared(
    members: dict[str, MetadataResponse | RmqhaError], fake_brokers: FakeBrokers
) -> None:
    """Each deletes its segments by its own."""
    status = MemberStatus("FOLLOWER", 1, 0, 0, 0, 0, broker_address="10.0.0.2:10911")
    members["n1"] = replace(GOOD, rmqha_status=status)
    members["n2"] = replace(GOOD, rmqha_status=replace(status, broker_address="10.0.0.3:10911"))
    ahead_ms = int(1000 * (time.time() + 7200))
    fake_brokers.answers["10.0.0.2:10911"] = {RequestCode.GET_BROKER_RUNTIME_INFO: runtime(clock_ms=ahead_ms)}
    good, (level, what), other = told_of(check_members(config(), timeout_s=1))
    assert (good[0], other[0], level) == ("ok", "ok", "warn")
    assert "10.0.0.2:10911: its clock is 7,2" in what


def test_a_host_that_is_named_in_two_ways_is_a_warning(members: dict[str, MetadataResponse | RmqhaError]) -> None:
    """The members tell it, too, and are not in sync: another process may be there."""
    members["n2"] = replace(GOOD, peers=PEERS | {"n1": "broker-1.example:40911"})
    _, (level, what) = told_of(check_members(config(), timeout_s=1))
    assert (level, what.partition("its list is ")[2]) == (
        "warn",
        "another one: n1 is broker-1.example:40911 there, and 10.0.0.2:40911 here",
    )


def test_another_list_fails(members: dict[str, MetadataResponse | RmqhaError]) -> None:
    members["n1"] = replace(GOOD, peers={"n0": "10.0.0.1:40911", "n1": "10.0.0.2:40911"})
    members["n2"] = replace(GOOD, peers=PEERS | {"n1": "10.0.0.2:40916", "n3": "10.0.0.4:40911"})
    (level, one), (other_level, other) = told_of(check_members(config(), timeout_s=1))
    assert (level, other_level) == ("warn", "fail"), "a member may be about to be added"
    assert one.endswith("its list is another one: n2 is missing there, and 10.0.0.3:40911 here")
    assert "n1 is 10.0.0.2:40916 there, and 10.0.0.2:40911 here; n3 is 10.0.0.4:40911 there" in other


@pytest.mark.parametrize(
    ("code", "said"), [(400, "is of another group than g"), (402, "is not n1, but another member")]
)
def test_another_group_or_member_fails(code: int, said: str, members: dict[str, MetadataResponse | RmqhaError]) -> None:
    members["n1"] = MetadataResponse(code)
    (level, what), _ = told_of(check_members(config(), timeout_s=1))
    assert (level, what) == ("fail", f"n1 at 10.0.0.2:40911: who answers there {said}")


@pytest.mark.parametrize("who", ["broker", "name server", "somebody"])
def test_a_port_that_is_no_member_s_is_named(
    who: str, members: dict[str, MetadataResponse | RmqhaError], fake_brokers: FakeBrokers
) -> None:
    """A listenPort in the list went unseen, and status sent the operator to namesrvAddr."""
    members["n1"] = MQBrokerError(3, "request type 50000 not supported")
    if who == "broker":
        fake_brokers.answers["10.0.0.2:40911"] = {RequestCode.GET_BROKER_RUNTIME_INFO: runtime()}
    elif who == "name server":
        fake_brokers.answers["10.0.0.2:40911"] = NAME_SERVER
    (finding, _) = check_members(config(), timeout_s=1)
    said = {"broker": "a broker's listenPort answers (SYNC_MASTER a)", "somebody": "somebody else answers"}
    assert finding.level == "fail"
    assert finding.what.startswith(f"n1 at 10.0.0.2:40911: {said.get(who, 'a name server answers')}")
    assert "not its listenPort" in finding.next


def test_who_does_not_answer_is_a_warning(members: dict[str, MetadataResponse | RmqhaError]) -> None:
    members["n2"] = RemotingConnectError("10.0.0.3:40911", "Connection refused")
    _, (level, what) = told_of(check_members(config(), timeout_s=1))
    assert (level, "Connection refused" in what) == ("warn", True)
