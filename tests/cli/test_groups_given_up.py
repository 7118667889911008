"""`rmqha groups describe`: what a group is to be given again, and has given up, of messages that are still there."""

import json

import pytest

from rmqha.cli.main import run
from rmqha.codec.codes import RequestCode
from rmqha.codec.message_queue import message_queue_key
from rmqha.codec.remoting import RemotingCommand
from tests.cli.fake_brokers import FakeBrokers, answer
from tests.cli.test_groups import A, Output, broker

RETRY, DEAD = "%RETRY%billing", "%DLQ%billing"


@pytest.mark.parametrize(
    ("place", "again"),
    [(None, 3), (0, 3), (2, 3), (7, 3), (8, 2), (10, 0), (12, 0)],
    ids=["none", "all has expired", "some has", "the first", "within", "the end", "beyond, as after a loss"],
)
def test_only_what_is_still_there_can_come_again(
    place: int | None, again: int, fake_brokers: FakeBrokers, capsys: Output
) -> None:
    """[7, 10) is there: what expired before the group had it, nobody is given any more."""
    stats = {"lastUpdateTimestamp": 1000, "maxOffset": 10, "minOffset": 7}

    def of_topic(fields: dict[str, str]) -> RemotingCommand:
        return answer({"offsetTable": {message_queue_key(fields["topic"], 0, broker_name="a"): stats}})

    def of_group(fields: dict[str, str]) -> RemotingCommand:
        row = {"brokerOffset": 10, "consumerOffset": place, "lastTimestamp": 0}
        is_there = place is not None and fields.get("topic") == RETRY
        return answer({"offsetTable": {message_queue_key(RETRY, 0, broker_name="a"): row} if is_there else {}})

    told = {RequestCode.GET_TOPIC_STATS_INFO: of_topic, RequestCode.GET_CONSUME_STATS: of_group}
    fake_brokers.answers = {A: broker(members=True) | told}
    assert run(["groups", "describe", "billing", "-b", A, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["retryLag"], document["deadLetters"]) == (again, 3)
    assert run(["groups", "describe", "billing", "-b", A]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {f"to be tried again: {again} messages in {RETRY}", f"given up (dead letters): 3 messages in {DEAD}"} <= {
        *lines
    }
