"""The page's search for messages: what was typed into it is what a broker is asked for, whatever is combined."""

from typing import Any, Final

import pytest

from rmqha.cli.named_brokers import NamedBroker
from rmqha.codec.codes import RequestCode
from rmqha.dashboard.questions import MESSAGES_MAX, Wanted, read_messages
from tests.cli.fake_brokers import FakeBrokers, answer
from tests.cli.test_message_get import OFFSET_ID, UNIQUE

A: Final = "10.0.0.1:10911"
BROKER: Final = NamedBroker(A, "a")
QUERY, VIEW = RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID
EVER: Final = (1 << 63) - 1


@pytest.mark.parametrize(
    ("wanted", "code", "expected"),
    [
        (Wanted(topic="t", key="k"), QUERY, {"key": "k", "beginTimestamp": 0, "endTimestamp": EVER}),
        (Wanted(topic="t", key="k", since_ms=5000), QUERY, {"key": "k", "beginTimestamp": 5000, "endTimestamp": EVER}),
        (Wanted(topic="t", msg_id=UNIQUE), QUERY, {"key": UNIQUE, "beginTimestamp": 0, "endTimestamp": EVER}),
        (Wanted(msg_id=OFFSET_ID), VIEW, {"offset": 300}),
        (Wanted(offset=77), VIEW, {"offset": 77}),
        (Wanted(offset=0), VIEW, {"offset": 0}),
        (Wanted(topic="t", since_ms=5000), RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": 5000, "queueId": 3}),
    ],
)
def test_all_that_was_typed_is_asked_for(
    wanted: Wanted, code: RequestCode, expected: dict[str, Any], fake_brokers: FakeBrokers
) -> None:
    stats = {'{"brokerName":"a","queueId":3,"topic":"t"}': {"lastUpdateTimestamp": 9, "maxOffset": 9, "minOffset": 0}}
    fake_brokers.answers[A] = {
        QUERY: answer(code=22, remark="none"),
        VIEW: answer(code=1, remark="none"),
        RequestCode.GET_TOPIC_STATS_INFO: answer({"offsetTable": stats}),
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: answer(offset="9"),
    }
    assert read_messages(BROKER, wanted, timeout_s=1)["messages"] == []
    asked = [fields for _, one, fields in fake_brokers.asked if one == code]
    assert asked, fake_brokers.asked
    shown = {name: value for name, value in asked[-1].items() if name in expected}
    assert shown == {name: str(value) for name, value in expected.items()}
    if code == QUERY:
        assert (asked[-1]["topic"], int(asked[-1]["maxNum"]) >= MESSAGES_MAX) == ("t", True)
