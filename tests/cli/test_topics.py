"""`rmqha topics`, as far as a broker is not needed."""

import json
from typing import Any

import pytest

from rmqha.cli.main import run
from rmqha.codec.codes import RequestCode
from rmqha.codec.message_queue import message_queue_key
from tests.cli.fake_brokers import Answer, FakeBrokers, answer, runtime

Output = pytest.CaptureFixture[str]
A, B = "10.0.0.1:10911", "10.0.0.2:10911"
NAMES = "10.0.0.9:9876"


def config(name: str, queues: int = 2, **more: Any) -> dict[str, Any]:
    facts = {
        "topicName": name, "readQueueNums": queues, "writeQueueNums": queues, "perm": 6, "order": True,
        "topicFilterType": "MULTI_TAG", "topicSysFlag": 1,
    }  # fmt: skip
    return facts | more


def broker(name: str, *topics: str) -> dict[RequestCode, Answer]:
    stats = {"lastUpdateTimestamp": 1, "maxOffset": 5, "minOffset": 2}
    by_queue = {message_queue_key("orders", 0, broker_name=name): stats}
    return {
        RequestCode.GET_BROKER_RUNTIME_INFO: runtime(broker_name=name),
        RequestCode.GET_ALL_TOPIC_CONFIG: answer({"topicConfigTable": {topic: config(topic) for topic in topics}}),
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: answer({"topicList": ["TBW102"]}),
        RequestCode.GET_TOPIC_STATS_INFO: answer({"offsetTable": by_queue}),
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: answer({"groupList": ["billing"]}),
        RequestCode.UPDATE_AND_CREATE_TOPIC: answer(),
        RequestCode.DELETE_TOPIC_IN_BROKER: answer(),
    }


def test_the_list_leaves_out_what_is_nobodys_own_and_moves_no_cursor(fake_brokers: FakeBrokers, capsys: Output) -> None:
    fake_brokers.answers = {A: broker("a", "orders", "TBW102", "%RETRY%g", "e\x1bvil")}
    assert run(["topics", "list", "-b", A]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["TOPIC", "BROKER", "WRITE", "QUEUES", "READ", "QUEUES", "PERM"],
        ["e\\x1bvil", "a", "2", "2", "rw"],
        ["orders", "a", "2", "2", "rw"],
    ]
    assert run(["topics", "list", "-b", A, "--all", "--format", "json"]) == 0
    names = [json.loads(line)["topic"] for line in capsys.readouterr().out.splitlines()]
    assert names == ["%RETRY%g", "TBW102", "e\x1bvil", "orders"]


def test_one_broker_of_two_that_is_down_is_told_and_counts(fake_brokers: FakeBrokers, capsys: Output) -> None:
    fake_brokers.answers = {A: broker("a", "orders")}
    assert run(["topics", "describe", "orders", "-b", f"{A},{B}"]) == 3
    assert "cannot be reached" in capsys.readouterr().err


def test_a_change_keeps_what_is_not_named(fake_brokers: FakeBrokers) -> None:
    fake_brokers.answers = {A: broker("a", "orders")}
    assert run(["topics", "update", "orders", "--perm", "r", "-b", A]) == 0
    ((_, _, fields),) = [one for one in fake_brokers.asked if one[1] == RequestCode.UPDATE_AND_CREATE_TOPIC]
    assert fields == {
        "topic": "orders", "readQueueNums": "2", "writeQueueNums": "2", "perm": "4", "topicFilterType": "MULTI_TAG",
        "topicSysFlag": "1", "defaultTopic": "TBW102", "order": "true",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ([], ("8", "8", "6")),
        (["--queues", "3"], ("3", "3", "6")),
        (["--queues", "3", "--perm", "r"], ("3", "3", "4")),
        (["--perm", "w"], ("8", "8", "2")),
    ],
)
def test_a_new_topic_is_what_was_asked_for(
    options: list[str], sent: tuple[str, ...], fake_brokers: FakeBrokers, capsys: Output
) -> None:
    fake_brokers.answers = {A: broker("a"), B: broker("b")}
    assert run(["topics", "create", "new", *options, "-b", A, "-b", B, "--format", "json"]) == 0
    changes = [one for one in fake_brokers.asked if one[1] == RequestCode.UPDATE_AND_CREATE_TOPIC]
    reads, writes, perm = sent
    assert [(address, fields) for address, _, fields in changes] == [
        (address, {
            "topic": "new", "readQueueNums": reads, "writeQueueNums": writes, "perm": perm, "order": "false",
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "defaultTopic": "TBW102",
        })
        for address in (A, B)
    ]  # fmt: skip
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["broker"], one["topicName"], one["readQueueNums"]) for one in told] == [
        (name, "new", int(reads)) for name in ("a", "b")
    ]


@pytest.mark.parametrize(
    ("options", "reads", "writes"),
    [
        (["--queues", "5"], "5", "5"),
        (["--read-queues", "5"], "5", "2"),
        (["--write-queues", "5"], "2", "5"),
        (["--queues", "5", "--read-queues", "7"], "7", "5"),
        (["--queues", "5", "--write-queues", "7"], "5", "7"),
        (["--read-queues", "7", "--write-queues", "4"], "7", "4"),
    ],
)
def test_the_more_exact_number_of_queues_wins(
    options: list[str], reads: str, writes: str, fake_brokers: FakeBrokers, capsys: Output
) -> None:
    fake_brokers.answers = {A: broker("a", "orders")}
    assert run(["topics", "update", "orders", *options, "-b", A]) == 0
    ((_, _, fields),) = [one for one in fake_brokers.asked if one[1] == RequestCode.UPDATE_AND_CREATE_TOPIC]
    assert (fields["readQueueNums"], fields["writeQueueNums"], fields["perm"]) == (reads, writes, "6")
    assert capsys.readouterr().out == f"a: orders has {writes} queues to write, {reads} to read, rw\n"


def test_a_topic_that_is_not_there_is_not_changed_and_it_is_told_where(
    fake_brokers: FakeBrokers, capsys: Output
) -> None:
    fake_brokers.answers = {A: broker("a", "orders"), B: broker("b")}
    assert run(["topics", "update", "orders", "--perm", "r", "-b", A, "-b", B]) == 1
    told = capsys.readouterr().err
    assert ("topic orders does not exist on b" in told, "rmqha topics create orders" in told) == (True, True)
    assert RequestCode.UPDATE_AND_CREATE_TOPIC not in fake_brokers.codes_asked()


def test_nothing_is_made_if_one_broker_has_it_already(fake_brokers: FakeBrokers, capsys: Output) -> None:
    fake_brokers.answers = {A: broker("a"), B: broker("b", "orders")}
    assert run(["topics", "create", "orders", "-b", A, "-b", B]) == 1
    assert "topic orders exists on b already" in capsys.readouterr().err
    assert RequestCode.UPDATE_AND_CREATE_TOPIC not in fake_brokers.codes_asked()
    assert run(["topics", "create", "or ders", "-b", A]) == 2
    assert run(["topics", "update", "orders", "-b", A]) == 2
    assert run(["topics", "update", "orders", "--perm", "r", "-b", A]) == 1
    assert RequestCode.UPDATE_AND_CREATE_TOPIC not in fake_brokers.codes_asked()


def test_nothing_is_deleted_that_nobody_confirmed(
    fake_brokers: FakeBrokers, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_brokers.answers = {A: broker("a", "orders"), B: broker("b")}
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert run(["topics", "delete", "orders", "-b", A, "-b", B]) == 2
    assert "with 3 messages on a? Groups that consume it: billing." in capsys.readouterr().err
    assert RequestCode.DELETE_TOPIC_IN_BROKER not in fake_brokers.codes_asked()
    assert run(["topics", "delete", "orders", "-b", A, "-b", B, "--yes"]) == 0
    assert [address for address, code, _ in fake_brokers.asked if code == RequestCode.DELETE_TOPIC_IN_BROKER] == [A]
    assert run(["topics", "delete", "orders", "-b", B, "--yes"]) == 1


def test_who_consumes_a_topic_is_said_only_where_somebody_does(
    fake_brokers: FakeBrokers, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody: dict[RequestCode, Answer] = {RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: answer({"groupList": []})}
    fake_brokers.answers = {A: broker("a", "orders") | nobody}
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert run(["topics", "delete", "orders", "-b", A]) == 2
    told = capsys.readouterr().err
    assert ("with 3 messages on a?" in told, "Groups" in told) == (True, False)


def named_by(*brokers: tuple[str, str]) -> dict[RequestCode, Answer]:
    """A name server that names these."""
    table = {name: {"brokerName": name, "cluster": "c", "brokerAddrs": {"0": at}} for name, at in brokers}
    clusters = {"brokerAddrTable": table, "clusterAddrTable": {"c": list(table)}}
    return {RequestCode.GET_BROKER_CLUSTER_INFO: answer(clusters), RequestCode.DELETE_TOPIC_IN_NAMESRV: answer()}


def test_a_deleted_topic_is_forgotten_at_the_name_servers_that_were_named(
    fake_brokers: FakeBrokers, capsys: Output
) -> None:
    """Else clients are told of it until the brokers register again."""
    first, second = "10.0.0.8:9876", "10.0.0.9:9876"
    names = named_by(("a", A), ("b", B))
    fake_brokers.answers = {first: names, second: names, A: broker("a", "orders"), B: broker("b", "orders")}
    assert run(["topics", "delete", "orders", "-b", first, "-b", second, "--yes", "--format", "json"]) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert told == [{"broker": name, "topic": "orders", "messages": 3} for name in ("a", "b")]
    deletions = (RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.DELETE_TOPIC_IN_NAMESRV)
    assert [(at, code, fields["topic"]) for at, code, fields in fake_brokers.asked if code in deletions] == [
        (A, RequestCode.DELETE_TOPIC_IN_BROKER, "orders"),
        (B, RequestCode.DELETE_TOPIC_IN_BROKER, "orders"),
        (first, RequestCode.DELETE_TOPIC_IN_NAMESRV, "orders"),
        (second, RequestCode.DELETE_TOPIC_IN_NAMESRV, "orders"),
    ]


@pytest.mark.parametrize(
    "command",
    [["delete", "orders", "--yes"], ["update", "orders", "--perm", "r"], ["create", "new"]],
    ids=lambda c: c[0],
)
def test_a_broker_that_is_away_is_told_by_the_exit_code_and_the_others_are_changed(
    command: list[str], fake_brokers: FakeBrokers, capsys: Output
) -> None:
    fake_brokers.answers = {NAMES: named_by(("a", A), ("b", B)), A: broker("a", "orders")}
    assert run(["topics", *command, "-b", NAMES]) == 3
    out, err = capsys.readouterr()
    assert (out.startswith("a: "), f"the broker at {B} cannot be reached" in err) == (True, True)
    changed = (RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.UPDATE_AND_CREATE_TOPIC)
    assert [at for at, code, _ in fake_brokers.asked if code in changed] == [A]


@pytest.mark.parametrize("command", [["describe", "order"], ["delete", "order", "--yes"]], ids=lambda c: c[0])
def test_a_topic_that_is_nowhere_is_told_with_where_it_was_looked_for(
    command: list[str], fake_brokers: FakeBrokers, capsys: Output
) -> None:
    fake_brokers.answers = {A: broker("a", "orders"), B: broker("b")}
    assert run(["topics", *command, "-b", A, "-b", B]) == 1
    told = capsys.readouterr().err
    assert ("topic order does not exist" in told, "not on a, b" in told) == (True, True)


def test_a_topic_is_described_with_its_queues_on_each_broker(fake_brokers: FakeBrokers, capsys: Output) -> None:
    fake_brokers.answers = {A: broker("a", "orders"), B: broker("b", "orders")}
    assert run(["topics", "describe", "orders", "-b", A, "-b", B]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["topic", "orders,", "consumed", "by", "billing"]
    assert rows[2:5] == [
        ["BROKER", "WRITE", "QUEUES", "READ", "QUEUES", "PERM", "MESSAGES"],
        ["a", "2", "2", "rw", "3"],
        ["b", "2", "2", "rw", "3"],
    ]
    assert [row[:5] for row in rows[7:]] == [["a", "0", "2", "5", "3"], ["b", "0", "2", "5", "3"]]
    assert run(["topics", "describe", "orders", "-b", A, "-b", B, "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["topic"], told["groups"], [one["broker"] for one in told["brokers"]]) == (
        "orders",
        ["billing"],
        ["a", "b"],
    )
    assert [(one["broker"], one["queue_id"], one["first"], one["end"]) for one in told["queues"]] == [
        ("a", 0, 2, 5), ("b", 0, 2, 5)
    ]  # fmt: skip
