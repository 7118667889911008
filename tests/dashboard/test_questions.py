"""What the dashboard asks a broker, and what it makes of the answers."""

import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import trio

from rmqha.cli.named_brokers import NamedBroker
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.java_json import dumps
from rmqha.dashboard import questions
from rmqha.dashboard.asking import ThreadAsker
from rmqha.dashboard.questions import (
    ANSWER_SIZE_MAX,
    GROUPS_MAX,
    NO_ANSWER,
    QUEUES_MAX,
    Wanted,
    brokers_at,
    read_broker,
    read_config,
    read_group,
    read_groups,
    read_messages,
    read_topic,
    read_topics,
    why,
)
from tests.cli.facts import master
from tests.cli.fake_brokers import FakeBrokers, answer
from tests.cli.test_groups import offsets
from tests.dashboard.fakes import NAMES, A, B, record, table

BROKER = NamedBroker(A, "a")
RUNTIME = RequestCode.GET_BROKER_RUNTIME_INFO


def test_a_reading_is_a_sample_and_a_view(fake_brokers: FakeBrokers) -> None:
    fake_brokers.answers[A] = {RUNTIME: answer({"table": table(master())})}
    first = read_broker(BROKER, None, {"billing": 7}, timeout_s=1)
    assert first.view is not None
    assert (first.view["role"], first.sample.put_tps, first.sample.consumer_lag) == ("SYNC_MASTER", 12.5, 7)
    fake_brokers.answers[A] = {RUNTIME: answer({"table": table({"role": "SYNC_MASTER"})})}
    second = read_broker(BROKER, first.sample, {}, timeout_s=1)
    assert (second.view, second.sample.answered_at_s) == (None, first.sample.answered_at_s)
    assert "cannot be read" in second.sample.trouble
    assert "Connection refused" in read_broker(NamedBroker(B, "b"), None, {}, timeout_s=1).sample.trouble


def test_a_name_server_tells_all_its_brokers(fake_brokers: FakeBrokers) -> None:
    registered = {"brokerAddrTable": {"a": {"brokerName": "a", "brokerAddrs": {0: A, 1: B}, "cluster": "c"}}}
    fake_brokers.answers = {
        NAMES: {RequestCode.GET_BROKER_CLUSTER_INFO: answer(registered | {"clusterAddrTable": {"c": ["a"]}})},
        A: {RUNTIME: answer({"table": {}})},
    }
    assert brokers_at(NAMES, timeout_s=1) == (BROKER, NamedBroker(B, "a", is_slave=True))
    assert brokers_at(A, timeout_s=1) == (NamedBroker(A, A),)


def test_topics_and_queues(fake_brokers: FakeBrokers) -> None:
    config = {"topicName": "t", "perm": 6, "readQueueNums": 4, "writeQueueNums": 8}
    topics = {name: config | {"topicName": name} for name in ("t", "%RETRY%g", "TBW102")}
    queues = {
        dumps({"topic": "t", "brokerName": "a", "queueId": queue}): {
            "minOffset": 1, "maxOffset": 5, "lastUpdateTimestamp": 9,
        }
        for queue in range(QUEUES_MAX + 5)
    }  # fmt: skip
    fake_brokers.answers[A] = {
        RequestCode.GET_ALL_TOPIC_CONFIG: answer({"topicConfigTable": topics}),
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: answer({"topicList": ["TBW102"]}),
        RequestCode.GET_TOPIC_STATS_INFO: answer({"offsetTable": queues}),
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: answer({"groupList": ["g"]}),
    }
    rows = read_topics(BROKER, timeout_s=1)
    assert [(row["topic"], row["system"]) for row in rows] == [("%RETRY%g", True), ("TBW102", True), ("t", False)]
    assert (rows[2]["writeQueues"], rows[2]["readQueues"], rows[2]["perm"]) == (8, 4, "rw")
    told = read_topic(BROKER, "t", timeout_s=1)
    assert (told["queues"][1], told["groups"]) == ({"queue": 1, "first": 1, "end": 5, "storedMs": 9}, ["g"])
    assert (len(told["queues"]), told["left"]) == (QUEUES_MAX, 5)


def test_groups_with_the_most_lag_first_and_so_many(fake_brokers: FakeBrokers) -> None:
    names: dict[str, Any] = {f"g{number}": {} for number in range(2 * GROUPS_MAX)}
    stats = {"consumeStatsList": [{"billing": [offsets("orders", 3, 4)]}, {"audit": [offsets("orders", 9)]}]}
    fake_brokers.answers[A] = {
        RequestCode.GET_BROKER_CONSUME_STATS: answer(stats),
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: answer({"subscriptionGroupTable": names}),
        RequestCode.GET_CONSUME_STATS: answer(offsets("orders", 3, 4)),
        RequestCode.GET_CONSUMER_CONNECTION_LIST: answer({"connectionSet": [{"clientId": "c1", "language": "JAVA"}]}),
    }
    rows = read_groups(BROKER, timeout_s=1)
    assert [(row["group"], row["lag"], row["topics"]) for row in rows[:2]] == [("audit", 9, 1), ("billing", 7, 1)]
    assert len(rows) == GROUPS_MAX
    told = read_group(BROKER, "billing", timeout_s=1)
    assert [queue["lag"] for queue in told["queues"]] == [4, 3]
    assert told["members"] == [{"clientId": "c1", "clientAddr": "", "language": "JAVA"}]


@pytest.mark.parametrize("code", [ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR])
def test_a_group_none_of_which_is_connected_has_no_members_and_its_lag(code: int, fake_brokers: FakeBrokers) -> None:
    fake_brokers.answers[A] = {
        RequestCode.GET_CONSUME_STATS: answer(offsets("orders", 3)),
        RequestCode.GET_CONSUMER_CONNECTION_LIST: answer(code=code, remark="the consumer group[g] not online"),
    }
    told = read_group(BROKER, "g", timeout_s=1)
    assert (told["members"], [queue["lag"] for queue in told["queues"]]) == ([], [3])


def test_a_configuration_with_origins_and_without_secrets(fake_brokers: FakeBrokers) -> None:
    user = b'initAuthenticationUser={"username":"rocketmq","password":"hunter2"}\n'
    body = b"listenPort=10911\nhaAck=durable\nsomeSecretKey=hunter2\n" + user
    origins = dumps({"listenPort": "broker.conf:3"})
    fake_brokers.answers[A] = {RequestCode.GET_BROKER_CONFIG: answer(body=body, origins=origins)}
    keys = read_config(BROKER, timeout_s=1)["keys"]
    assert [(one["key"], one["value"], one["origin"]) for one in keys] == [
        ("listenPort", "10911", "broker.conf:3"),
        ("haAck", "durable", "default"),
        ("someSecretKey", "(not shown)", "default"),
        ("initAuthenticationUser", "(not shown)", "default"),
    ]
    fake_brokers.answers[A] = {RequestCode.GET_BROKER_CONFIG: answer(body=body)}
    assert read_config(BROKER, timeout_s=1)["keys"][0]["origin"] is None


def test_messages_by_key_by_id_and_by_place(fake_brokers: FakeBrokers) -> None:
    fake_brokers.answers[A] = {
        RequestCode.VIEW_MESSAGE_BY_ID: lambda fields: (
            answer(body=record()) if fields["offset"] == "300" else answer(code=1, remark="can not find message")
        ),
        RequestCode.QUERY_MESSAGE: answer(body=record()),
    }
    for wanted in (Wanted(offset=300), Wanted(topic="orders", key="k2")):
        told = read_messages(BROKER, wanted, timeout_s=1)
        assert [one["offset"] for one in told["messages"]] == [300]
    by_id = Wanted(msg_id=told["messages"][0]["offsetMsgId"])
    assert len(read_messages(BROKER, by_id, timeout_s=1)["messages"]) == 1
    assert read_messages(BROKER, Wanted(offset=1), timeout_s=1) == {"messages": [], "reason": "can not find message"}


def test_messages_by_topic_and_time(fake_brokers: FakeBrokers) -> None:
    queue = dumps({"topic": "orders", "brokerName": "a", "queueId": 1})
    ends = {queue: {"minOffset": 0, "maxOffset": 9, "lastUpdateTimestamp": 9}}
    fake_brokers.answers[A] = {
        RequestCode.GET_TOPIC_STATS_INFO: answer({"offsetTable": ends}),
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: answer(offset="3"),
        RequestCode.PULL_MESSAGE: answer(body=record()),
    }
    told = read_messages(BROKER, Wanted(topic="orders", since_ms=1_000_000), timeout_s=1)
    assert [one["offset"] for one in told["messages"]] == [300]
    assert "stored then" in read_messages(BROKER, Wanted(topic="orders", since_ms=2_000_000), timeout_s=1)["reason"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"table":3}', b"\xff", b"[" * 1000])
def test_no_answer_raises_but_what_is_expected(body: bytes, fake_brokers: FakeBrokers) -> None:
    fake_brokers.answers[A] = dict.fromkeys(RequestCode, answer(body=body))
    asks: list[Callable[[], object]] = [
        lambda: read_topics(BROKER, timeout_s=1),
        lambda: read_topic(BROKER, "t", timeout_s=1),
        lambda: read_groups(BROKER, timeout_s=1),
        lambda: read_group(BROKER, "g", timeout_s=1),
        lambda: read_messages(BROKER, Wanted(offset=1), timeout_s=1),
        lambda: read_config(BROKER, timeout_s=1),
        lambda: brokers_at(A, timeout_s=1),
    ]
    reasons = []
    for ask in asks:
        try:
            ask()
        except NO_ANSWER as error:
            reasons.append(why(error))
    assert len(reasons) > 1
    assert all(0 < len(reason) <= 500 for reason in reasons)
    assert read_broker(BROKER, None, {}, timeout_s=1).sample.trouble


@pytest.mark.parametrize("said", [b"", struct.pack(">i", ANSWER_SIZE_MAX + 1) + b"x" * 100, b"HTTP/1.1 200 OK\r\n"])
def test_one_that_is_silent_or_begins_a_book_is_given_up(said: bytes) -> None:
    """On a real socket."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        held = []

        def answer_one() -> None:
            connection, _ = listening.accept()
            held.append(connection)
            connection.sendall(said)

        thread = threading.Thread(target=answer_one)
        thread.start()
        broker = NamedBroker(f"127.0.0.1:{listening.getsockname()[1]}", "a")
        began_at = time.monotonic()
        trouble = read_broker(broker, None, {}, timeout_s=0.3 if not said else 60).sample.trouble
        assert time.monotonic() - began_at < 30
        thread.join()
        held[0].close()
    assert "cannot be reached" in trouble


async def test_a_thread_that_does_not_come_back_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real time, in small: threads have no other."""
    came, go_on = trio.Event(), threading.Event()
    token = trio.lowlevel.current_trio_token()

    def hang(_broker: object, *, timeout_s: float) -> list[object]:
        token.run_sync_soon(came.set)
        go_on.wait(60)
        return []

    monkeypatch.setattr(questions, "read_topics", hang)
    monkeypatch.setattr(questions, "brokers_at", lambda _address, *, timeout_s: ())
    asker = ThreadAsker(timeout_s=60)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asker.read_topics, BROKER)
            await came.wait()
            nursery.cancel_scope.cancel()
        assert await asker.brokers_at(B) == ()
        assert list(asker._places) == [A]
        with pytest.raises(TimeoutError, match="has not answered in"):  # of three answers, and a second more: 0.1 s
            await ThreadAsker(timeout_s=-0.3).read_topics(BROKER)
    finally:
        go_on.set()


def test_each_group_has_a_row_those_without_lag_by_their_names(fake_brokers: FakeBrokers) -> None:
    names: dict[str, Any] = {"b": {}, "a": {}, "c": {}}
    fake_brokers.answers[A] = {
        RequestCode.GET_BROKER_CONSUME_STATS: answer({"consumeStatsList": [{"late": [offsets("orders", 2)]}]}),
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: answer({"subscriptionGroupTable": names}),
    }
    rows = read_groups(BROKER, timeout_s=1)
    assert [(row["group"], row["lag"]) for row in rows] == [("late", 2), ("a", 0), ("b", 0), ("c", 0)]
