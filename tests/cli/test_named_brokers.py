"""What the addresses of --broker stand for, and brokers that do not answer."""

import pytest

from rmqha.cli.ask import BrokerConnection, RefusedError
from rmqha.cli.errors import CliError, UnreachableError
from rmqha.cli.main import run
from rmqha.cli.named_brokers import NamedBroker, ask_each, named_brokers
from rmqha.codec.codes import RequestCode
from rmqha.codec.java_json import loads
from rmqha.codec.remoting import RemotingCommand
from tests.cli.facts import member
from tests.cli.fake_brokers import FakeBrokers, answer, runtime

RUNTIME, CLUSTER = RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_BROKER_CLUSTER_INFO
A, B, C, D = (f"10.0.0.{number}:10911" for number in range(1, 5))
NS = "10.0.0.9:9876"


def cluster(**addresses: dict[str, str]) -> dict[str, object]:
    table = {name: {"brokerName": name, "cluster": "c", "brokerAddrs": addrs} for name, addrs in addresses.items()}
    return {"brokerAddrTable": table, "clusterAddrTable": {"c": list(table)}}


def test_a_name_server_stands_for_its_masters_or_slaves_without_one(fake_brokers: FakeBrokers) -> None:
    known = cluster(a={"0": A, "1": "10.0.0.1:10921"}, b={"1": B})
    fake_brokers.answers = {NS: {CLUSTER: answer(known)}, A: {RUNTIME: runtime(broker_name="a")}}
    named = named_brokers([A, NS], timeout_s=1)
    assert named.brokers == (NamedBroker(A, "a"), NamedBroker(B, "b", is_slave=True))
    assert named.name_servers == (NS,)
    with pytest.raises(CliError, match=f"nothing can be changed at {B}: it is a slave"):
        named.masters()


def test_a_rocketmq_broker_is_called_by_its_address_and_one_that_refuses_is_a_broker(fake_brokers: FakeBrokers) -> None:
    refusing = answer(code=1, remark="AclException: no accessKey")
    fake_brokers.answers = {A: {RUNTIME: answer({"table": {}})}, B: {RUNTIME: refusing}}
    assert named_brokers([A, B], timeout_s=1).brokers == (NamedBroker(A, A), NamedBroker(B, B))


def of_group(*, is_master: bool = False, term: int = 3, **more: object) -> RemotingCommand:
    facts = member("LEADER" if is_master else "FOLLOWER", is_master=is_master, term=term, master=more.pop("master", A))
    return runtime(**facts | {"broker_name": "n"} | more)


@pytest.mark.parametrize("order", [(A, B), (B, A)])
def test_of_a_dledger_group_the_master_alone_is_asked_and_changed(
    order: tuple[str, str], fake_brokers: FakeBrokers
) -> None:
    """The one was changed, and then the other refused; or the other way round."""
    fake_brokers.answers = {
        A: {RUNTIME: of_group(is_master=True)},
        B: {RUNTIME: of_group()},
        C: {RUNTIME: runtime(broker_name="c")},
        D: {RUNTIME: runtime(broker_name="n", starting={"for_s": 1})},
    }
    named = named_brokers([*order, C, D], timeout_s=1)
    assert [one.address for one in named.leading] == [A, C]
    assert named.masters() == named.leading
    assert len(named.brokers) == 4
    fake_brokers.answers[B] = {RUNTIME: of_group(is_master=True, term=4)}
    assert [one.address for one in named_brokers(order, timeout_s=1).masters()] == [B], "A was told of nothing since"


def test_a_dledger_group_whose_master_is_not_named_is_not_changed(fake_brokers: FakeBrokers) -> None:
    fake_brokers.answers = {B: {RUNTIME: of_group()}, C: {RUNTIME: of_group(master=None)}}
    named = named_brokers([B, C], timeout_s=1)
    assert [one.address for one in named.leading] == [B]
    with pytest.raises(
        CliError, match=f"nothing can be changed at {B}: it is no master of its DLedger group g"
    ) as told:
        named.masters()
    assert told.value.hint == f"name the master with --broker: {A}"
    with pytest.raises(CliError, match="no master of its DLedger group") as told:
        named_brokers([C], timeout_s=1).masters()
    assert "where nobody leads" in told.value.hint


def test_what_is_neither_and_a_name_server_without_brokers_are_said(fake_brokers: FakeBrokers) -> None:
    fake_brokers.answers = {A: {}, NS: {CLUSTER: answer(cluster())}}
    with pytest.raises(CliError, match="neither a broker nor a name server"):
        named_brokers([A], timeout_s=1)
    with pytest.raises(CliError, match="no broker is registered"):
        named_brokers([NS], timeout_s=1)
    fake_brokers.answers = {NS: {CLUSTER: answer({"brokerAddrTable": [1]})}}
    with pytest.raises(CliError, match="does not tell its brokers"):
        named_brokers([NS], timeout_s=1)


def count(connection: BrokerConnection, _broker: NamedBroker) -> int:
    return len(loads(bytes(connection.ask_for(RUNTIME).body))["table"])


def test_brokers_that_cannot_be_reached_are_told_beside_what_others_answer(
    fake_brokers: FakeBrokers, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_brokers.answers = {A: {RUNTIME: answer({"table": {"x": "1"}})}}
    answers = ask_each([NamedBroker(B, "b"), NamedBroker(A, "a")], count, timeout_s=1)
    assert (answers.found, answers.is_partial) == ([(NamedBroker(A, "a"), 1)], True)
    assert f"the broker at {B} cannot be reached" in capsys.readouterr().err
    with pytest.raises(UnreachableError):
        ask_each([NamedBroker(B, "b")], count, timeout_s=1)


def test_a_broker_that_is_away_is_named_all_the_same_if_it_may_be(fake_brokers: FakeBrokers) -> None:
    fake_brokers.answers = {A: {RUNTIME: runtime(broker_name="a")}}
    assert named_brokers([B, A], timeout_s=1, may_be_away=True).brokers == (NamedBroker(B, B), NamedBroker(A, "a"))
    with pytest.raises(UnreachableError):
        named_brokers([A, B], timeout_s=1)


def test_topics_of_the_others_are_listed(fake_brokers: FakeBrokers, capsys: pytest.CaptureFixture[str]) -> None:
    topics = answer({"topicConfigTable": {"orders": {"topicName": "orders"}}})
    fake_brokers.answers = {A: {RUNTIME: runtime(broker_name="a"), RequestCode.GET_ALL_TOPIC_CONFIG: topics}}
    code = run(["topics", "list", "--all", "-b", B, "-b", A])
    out, err = capsys.readouterr()
    assert (code, "orders" in out, f"the broker at {B} cannot be reached" in err) == (3, True, True), err


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"table":3}', b"\xff", b'{"table":'])
def test_an_answer_that_is_none_is_an_error_in_words(fake_brokers: FakeBrokers, body: bytes) -> None:
    fake_brokers.answers = {A: {RUNTIME: answer(body=body)}}
    with pytest.raises(CliError, match="cannot be read"):
        ask_each([NamedBroker(A, "a")], count, timeout_s=1)


def test_a_refusal_has_its_code_and_a_hint_at_accounts(fake_brokers: FakeBrokers) -> None:
    fake_brokers.answers = {A: {RUNTIME: answer(code=1, remark="org.AclException: No\x1b permission")}}
    with pytest.raises(RefusedError) as caught:
        ask_each([NamedBroker(A, "a")], count, timeout_s=1)
    assert caught.value.code == 1
    assert "\x1b" not in caught.value.why
    assert "RMQHA_CREDENTIALS" in caught.value.hint


@pytest.mark.parametrize(
    "command",
    [
        ["topics", "create", "t"],
        ["topics", "update", "t", "--perm", "r"],
        ["topics", "delete", "t", "--yes"],
        ["groups", "reset", "g", "--topic", "t", "--to", "latest", "--execute"],
        ["groups", "delete", "g", "--yes"],
    ],
)
def test_no_command_changes_anything_at_a_slave(
    command: list[str], fake_brokers: FakeBrokers, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_brokers.answers = {A: {RUNTIME: runtime(role="SLAVE")}}
    assert run([*command, "-b", A]) == 1
    assert f"nothing can be changed at {A}: it is a slave" in capsys.readouterr().err
    assert fake_brokers.codes_asked() == [RUNTIME]
