"""`rmqha message get`: which questions lead to a message, and what is no answer."""

import json

import pytest

from rmqha.cli.main import run
from rmqha.cli.pages import Page
from rmqha.client.compression import ZLIB_SYS_FLAG, compress_body
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.host import parse_host
from rmqha.codec.java_json import dumps
from rmqha.codec.message_id import encode_message_id
from rmqha.codec.record.encoder import prepare
from rmqha.codec.remoting import RemotingCommand
from tests.cli.fake_brokers import FakeBrokers, answer, runtime

Output = pytest.CaptureFixture[str]
A = "10.0.0.1:10911"
HOST = parse_host(A)
OFFSET_ID = encode_message_id(HOST, 300)
NOW_MS = 1_700_000_000_000
UNIQUE = "7F0000010000000000000000000000AB"


def record(
    physical_offset: int = 300,
    *,
    keys: str = "k1 k2",
    body: bytes = b"body\x1b",
    sys_flag: int = 0,
    stored_ms: int = 1_000_001,
    queue_offset: int = 3,
) -> bytes:
    return prepare(
        "orders",
        body,
        properties_raw=f"UNIQ_KEY\x01{UNIQUE}\x02KEYS\x01{keys}".encode(),
        queue_id=1,
        flag=0,
        sys_flag=sys_flag,
        born_timestamp_ms=1_000_000,
        born_host_raw=HOST,
        store_host_raw=HOST,
    ).pack(queue_offset=queue_offset, physical_offset=physical_offset, store_timestamp_ms=stored_ms)


@pytest.fixture
def broker(fake_brokers: FakeBrokers) -> FakeBrokers:
    fake_brokers.answers = {
        A: {
            RequestCode.GET_BROKER_RUNTIME_INFO: runtime(broker_name="a"),
            RequestCode.VIEW_MESSAGE_BY_ID: lambda fields: (
                answer(body=record()) if fields["offset"] == "300" else answer(code=1, remark="can not find message")
            ),
            RequestCode.QUERY_MESSAGE: lambda fields: (
                answer(body=record() + record(600, keys="k3"))
                if fields["topic"] == "orders"
                else answer(code=22, remark="can not find message, maybe time range not correct")
            ),
        }
    }
    return fake_brokers


def found(capsys: Output, *arguments: str) -> list[int]:
    assert run(["message", "get", *arguments, "-b", A, "--format", "json"]) == 0
    return [json.loads(line)["physicalOffset"] for line in capsys.readouterr().out.splitlines()]


def test_every_way_to_a_message(broker: FakeBrokers, capsys: Output) -> None:
    assert found(capsys, OFFSET_ID) == [300]
    assert found(capsys, OFFSET_ID.lower()) == [300]
    assert found(capsys, "--offset", "300") == [300]
    assert found(capsys, "--key", "k2", "-t", "orders") == [300]
    assert found(capsys, UNIQUE, "-t", "orders") == [300, 600]
    unique = [fields["_UNIQUE_KEY_QUERY"] for _, code, fields in broker.asked if code == RequestCode.QUERY_MESSAGE]
    assert unique == ["false", "true"]


def test_the_page_of_a_message_moves_no_cursor(broker: FakeBrokers, capsys: Output) -> None:
    assert run(["message", "get", OFFSET_ID, "-b", A]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "topic      orders, queue 1 of a, offset 3"
    assert lines[-1] == "body\\x1b"


def test_what_is_not_found_is_said_with_the_reason(broker: FakeBrokers, capsys: Output) -> None:
    assert run(["message", "get", UNIQUE, "-b", A]) == 1
    assert "found with --topic" in capsys.readouterr().err
    assert run(["message", "get", "--key", "k1", "-t", "other", "-b", A]) == 1
    assert "maybe time range not correct" in capsys.readouterr().err
    assert run(["message", "get", encode_message_id(parse_host("10.0.0.2:1"), 300), "-b", A]) == 1
    assert run(["message", "get", "nonsense", "-b", A]) == 1
    assert "no offsetMsgId" in capsys.readouterr().err


def stored_since(ms: int) -> tuple[str, ...]:
    return ("-t", "orders", "--since", str(ms))


@pytest.fixture
def queues(broker: FakeBrokers) -> FakeBrokers:
    """Three of a topic: what a search leads to may be older, one is cut meanwhile, one is empty and is not asked."""

    def one(physical_offset: int, since_ms: int, queue_offset: int) -> bytes:
        return record(physical_offset, stored_ms=NOW_MS + since_ms, queue_offset=queue_offset)

    pulled = {
        ("0", "40"): answer(body=one(100, 0, 40) + one(400, 9, 41)),
        ("1", "41"): answer(body=one(200, 5, 41) + one(300, 7, 42)),
        ("2", "42"): answer(code=ResponseCode.PULL_OFFSET_MOVED),
    }
    nothing = answer(code=ResponseCode.PULL_NOT_FOUND)
    ends = {
        dumps({"topic": "orders", "brokerName": "a", "queueId": queue}): {
            "minOffset": 40, "maxOffset": end, "lastUpdateTimestamp": 9,
        }
        for queue, end in ((0, 50), (1, 50), (2, 50), (3, 40))
    }  # fmt: skip
    broker.answers[A] |= {
        RequestCode.GET_TOPIC_STATS_INFO: answer({"offsetTable": ends}),
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: lambda fields: answer(offset=f"4{fields['queueId']}"),
        RequestCode.PULL_MESSAGE: lambda fields: pulled.get((fields["queueId"], fields["queueOffset"]), nothing),
    }
    return broker


def test_by_time_the_first_of_all_queues_are_found_oldest_first(queues: FakeBrokers, capsys: Output) -> None:
    assert found(capsys, *stored_since(NOW_MS + 1)) == [200, 300, 400]
    pulls = [fields for _, code, fields in queues.asked if code == RequestCode.PULL_MESSAGE]
    places = [(one["queueId"], one["queueOffset"]) for one in pulls]
    assert places == [("0", "40"), ("0", "42"), ("1", "41"), ("1", "43"), ("2", "42")]
    assert {one["consumerGroup"] for one in pulls} == {"TOOLS_CONSUMER"}
    assert found(capsys, *stored_since(NOW_MS), "-n", "2") == [100, 200]
    assert found(capsys, *stored_since(NOW_MS + 1), "--until", str(NOW_MS + 7)) == [200, 300]


def test_by_time_a_queue_is_asked_until_enough_was_found(queues: FakeBrokers, capsys: Output) -> None:
    """A broker gives 32 at once, or fewer, if they are large."""

    def pull(fields: dict[str, str]) -> RemotingCommand:
        begin = int(fields["queueOffset"])
        if fields["queueId"] != "0" or begin >= 150:
            return answer(code=ResponseCode.PULL_NOT_FOUND)
        return answer(
            body=b"".join(record(at, stored_ms=NOW_MS + at, queue_offset=at) for at in range(begin, begin + 10))
        )

    ends = {
        dumps({"topic": "orders", "brokerName": "a", "queueId": 0}): {
            "minOffset": 40, "maxOffset": 150, "lastUpdateTimestamp": 9,
        }
    }  # fmt: skip
    queues.answers[A][RequestCode.GET_TOPIC_STATS_INFO] = answer({"offsetTable": ends})
    queues.answers[A][RequestCode.PULL_MESSAGE] = pull
    assert found(capsys, *stored_since(NOW_MS + 50)) == list(range(50, 114))
    assert found(capsys, *stored_since(NOW_MS + 50), "--until", str(NOW_MS + 70)) == list(range(50, 71))
    assert len(queues.codes_asked()) < 20


def test_by_time_a_broker_that_answers_slowly_is_not_asked_for_ever(
    queues: FakeBrokers, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqha.cli.message_search._SEARCH_S", -1.0)
    assert run(["message", "get", *stored_since(NOW_MS), "-b", A]) == 1
    assert "in the 0 queues that were asked" in capsys.readouterr().err
    assert RequestCode.PULL_MESSAGE not in queues.codes_asked()


def test_by_time_nothing_is_found_where_nothing_was_stored(queues: FakeBrokers, capsys: Output) -> None:
    assert run(["message", "get", *stored_since(NOW_MS + 10), "-b", A]) == 1
    assert "stored then, in any queue" in capsys.readouterr().err
    queues.answers[A][RequestCode.PULL_MESSAGE] = answer(code=ResponseCode.NO_PERMISSION, remark="not to be read")
    assert run(["message", "get", *stored_since(NOW_MS), "-b", A]) == 1
    assert "not to be read" in capsys.readouterr().err
    assert run(["message", "get", "--since", "-1h", "-b", A]) == 2


def test_wrong_usage_and_answers_that_are_none(broker: FakeBrokers, capsys: Output) -> None:
    assert run(["message", "get", "-b", A]) == 2
    assert run(["message", "get", OFFSET_ID, "--offset", "3", "-b", A]) == 2
    assert run(["message", "get", "--key", "k", "-b", A]) == 2
    broker.answers[A][RequestCode.VIEW_MESSAGE_BY_ID] = answer(body=record()[:50])
    assert run(["message", "get", "--offset", "300", "-b", A]) == 1
    assert "cannot be read" in capsys.readouterr().err
    broker.answers[A][RequestCode.VIEW_MESSAGE_BY_ID] = answer(code=1, remark="AclException: not an admin")
    assert run(["message", "get", "--offset", "300", "-b", A]) == 1
    assert "RMQHA_CREDENTIALS" in capsys.readouterr().err


def test_a_record_that_is_damaged_names_its_page_and_not_a_version(broker: FakeBrokers, capsys: Output) -> None:
    stored = bytearray(record())
    stored[88] ^= 1
    broker.answers[A][RequestCode.VIEW_MESSAGE_BY_ID] = answer(body=bytes(stored))
    assert run(["message", "get", "--offset", "300", "-b", A]) == 1
    told = capsys.readouterr().err
    assert "the record there is damaged in the broker's log" in told
    assert str(Page.DAMAGED) in told
    assert "version" not in told


def test_of_small_messages_that_inflate_to_large_ones_the_first_are_inflated(
    broker: FakeBrokers, capsys: Output
) -> None:
    large = [record(at, body=compress_body(bytes(40 << 20)), sys_flag=ZLIB_SYS_FLAG) for at in (300, 600, 900)]
    broker.answers[A][RequestCode.QUERY_MESSAGE] = answer(body=b"".join(large))
    assert run(["message", "get", "--key", "k2", "-t", "orders", "-b", A, "--format", "json"]) == 0
    sizes = [json.loads(line)["bodyLength"] for line in capsys.readouterr().out.splitlines()]
    assert sizes[0] == 40 << 20
    assert max(sizes[1:]) < 1 << 20
