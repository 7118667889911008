"""`rmqha groups reset --to @TIME`: the first message that was stored then or later is the next one, in each queue."""

import json
from collections.abc import Sequence
from typing import Any, Final

import pytest

from rmqha.cli.main import run
from rmqha.codec.codes import RequestCode
from rmqha.codec.message_queue import message_queue_key
from rmqha.codec.remoting import RemotingCommand
from tests.cli.fake_brokers import Answer, FakeBrokers, answer
from tests.cli.test_groups import MEMBER, RESET, A, Output, broker, changes

BEGAN_MS: Final = 1_700_000_000_000
FIRST: Final = 2
"""Of each queue: what was before it is gone."""
STORED_MS: Final[Sequence[tuple[int, ...]]] = (
    (0, 10, 10, 20),
    (5,),
    (10, 30, 30),
    (),
)
"""Of the messages of each queue, since then."""


def found_by_time(fields: dict[str, str]) -> RemotingCommand:
    """As a broker answers: a time behind all messages gives the last one."""
    stored, timestamp = STORED_MS[int(fields["queueId"])], int(fields["timestamp"])
    found = [at for at, ms in enumerate(stored) if BEGAN_MS + ms >= timestamp] or [max(len(stored) - 1, 0)]
    return answer(offset=str(FIRST + found[0]))


def end_of(fields: dict[str, str]) -> RemotingCommand:
    return answer(offset=str(FIRST + len(STORED_MS[int(fields["queueId"])])))


def with_messages() -> dict[RequestCode, Answer]:
    count = len(STORED_MS)
    topic = {"topicName": "orders", "readQueueNums": count, "writeQueueNums": count, "perm": 6}
    table = {
        message_queue_key("orders", queue_id, broker_name="a"): {
            "lastUpdateTimestamp": BEGAN_MS + stored[-1] if stored else 0,
            "minOffset": FIRST,
            "maxOffset": FIRST + len(stored),
        }
        for queue_id, stored in enumerate(STORED_MS)
    }
    return broker() | {
        RequestCode.GET_ALL_TOPIC_CONFIG: answer({"topicConfigTable": {"orders": topic}}),
        RequestCode.GET_TOPIC_STATS_INFO: answer({"offsetTable": table}),
        RequestCode.GET_MAX_OFFSET: end_of,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: found_by_time,
    }


def wanted_at(timestamp_ms: int) -> list[int]:
    return [FIRST + sum(BEGAN_MS + ms < timestamp_ms for ms in stored) for stored in STORED_MS]


def planned(timestamp_ms: int, *options: str, capsys: Output) -> list[dict[str, Any]]:
    assert run([*RESET, "--to", f"@{timestamp_ms}", "--format", "json", *options]) == 0
    queues: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["queues"]
    return queues


def test_no_message_of_that_time_or_later_is_passed_over_and_no_earlier_one_comes_again(
    fake_brokers: FakeBrokers, capsys: Output
) -> None:
    fake_brokers.answers = {A: with_messages()}
    times = sorted({BEGAN_MS + ms + beside for stored in STORED_MS for ms in stored for beside in (-1, 0, 1)})
    for timestamp_ms in times:
        queues = planned(timestamp_ms, capsys=capsys)
        assert [one["wanted"] for one in queues] == wanted_at(timestamp_ms), timestamp_ms - BEGAN_MS
        ends = [FIRST + len(stored) for stored in STORED_MS]
        assert [one["wanted"] + one["lag"] for one in queues] == ends
        before = len(changes(fake_brokers))
        planned(timestamp_ms, "--execute", capsys=capsys)
        done = [fields["commitOffset"] for _, fields in changes(fake_brokers)[before:]]
        assert [int(offset) for offset in done] == wanted_at(timestamp_ms), timestamp_ms - BEGAN_MS


def test_of_a_queue_of_which_the_broker_does_not_tell_no_message_is_passed_over(
    fake_brokers: FakeBrokers, capsys: Output
) -> None:
    """RocketMQ 4.9 leaves out queues that are not written any more: they were set to their ends by any time."""
    answers = with_messages() | {RequestCode.GET_TOPIC_STATS_INFO: answer({"offsetTable": {}})}
    fake_brokers.answers = {A: answers}
    last = [FIRST + max(len(stored) - 1, 0) for stored in STORED_MS]
    for after_ms in (0, 10, 40):
        queues = planned(BEGAN_MS + after_ms, capsys=capsys)
        assert [one["wanted"] for one in queues] == [*map(min, wanted_at(BEGAN_MS + after_ms), last)]


@pytest.mark.parametrize("beside", [-1, 0, 1])
def test_with_members_what_their_broker_will_find_is_planned(
    beside: int, fake_brokers: FakeBrokers, capsys: Output
) -> None:
    """Behind the last message that is the last one: the broker's own search has no other answer."""
    members = answer({"connectionSet": [MEMBER]})
    fake_brokers.answers = {A: with_messages() | {RequestCode.GET_CONSUMER_CONNECTION_LIST: members}}
    timestamp_ms = BEGAN_MS + 20 + beside
    queues = planned(timestamp_ms, capsys=capsys)
    last = [FIRST + max(len(stored) - 1, 0) for stored in STORED_MS]
    assert [one["wanted"] for one in queues] == [*map(min, wanted_at(timestamp_ms), last)]


@pytest.mark.parametrize(("read", "write"), [(4, 1), (1, 4)], ids=["drained", "not read yet"])
@pytest.mark.parametrize(("place", "wanted"), [("earliest", "2"), ("latest", "10"), ("5", "5")])
def test_each_queue_that_is_read_or_written_is_set(
    place: str, wanted: str, read: int, write: int, fake_brokers: FakeBrokers
) -> None:
    """Of a topic that is to have fewer queues those that are read to their end are not written any more."""
    topic = {"topicName": "orders", "readQueueNums": read, "writeQueueNums": write, "perm": 6}
    fake_brokers.answers = {
        A: broker() | {RequestCode.GET_ALL_TOPIC_CONFIG: answer({"topicConfigTable": {"orders": topic}})}
    }
    assert run([*RESET, "--to", place, "--execute"]) == 0
    done = [(fields["queueId"], fields["commitOffset"]) for _, fields in changes(fake_brokers)]
    assert done == [(str(queue_id), wanted) for queue_id in range(4)]
