"""QueryProcessor: what is told of queues that are not what they were."""

from rmqha.broker.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.processors.query_processor import QueryProcessor
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import QueryConsumerOffsetRequestHeader, encode_header
from rmqha.codec.remoting import RemotingCommand


class CleanedStore:
    """A queue whose first messages are gone."""

    def get_min_offset_in_queue(self, _topic: str, _queue_id: int) -> int:
        return 5

    def get_max_offset_in_queue(self, _topic: str, _queue_id: int) -> int:
        return 9


def test_a_new_group_does_not_begin_at_0_if_the_queue_does_not() -> None:
    """It would be told to start over at what is there, as if it had lost messages."""
    processor = QueryProcessor(CleanedStore(), ConsumerOffsetManager())  # type: ignore[arg-type]
    header = QueryConsumerOffsetRequestHeader("g", "t", 0)
    request = RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=encode_header(header))
    answer = processor.query_consumer_offset(None, request)  # type: ignore[arg-type]
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
