"""What was learned of a destination holds only as long as the table of topics."""

from collections.abc import Callable

import pytest

from rmqha.broker.puts.put_service import Put
from rmqha.broker.puts.sent_records import Asked, SendRules
from rmqha.broker.puts.stored_properties import SendRefusedError, StoredProperties
from rmqha.broker.puts.usual_puts import UsualPuts
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.codec.codes import ResponseCode
from rmqha.codec.host import parse_host
from rmqha.codec.record.encoder import PreparedRecord
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.send_headers import SendMessageRequestHeader
from rmqha.codec.usual.decoder import RequestDecoder
from rmqha.codec.usual.sends import UsualSend, UsualSends
from tests.broker.machines import send_request
from tests.settings import topic_rules

PEER = "10.9.9.9:999"


class Broker:
    """What decides about destinations, and counts how often it is asked."""

    def __init__(self, *, store_host: str = "10.0.0.1:10911") -> None:
        self.topics = TopicConfigManager(topic_rules(), now_ms=lambda: 1)
        self.topics.learn_queue("t", 3)
        self.asked = 0
        self.refuses = False
        rules = SendRules("c", parse_host(store_host), 1000)
        self.usual = UsualPuts(self.topics, self.check_destination, StoredProperties("c"), rules=rules)

    def check_destination(self, header: SendMessageRequestHeader) -> int:
        self.asked += 1
        if self.refuses:
            raise SendRefusedError(ResponseCode.NO_PERMISSION, "not any more")
        return header.queue_id

    def accept(self, request: UsualSend, *, peer: str = PEER) -> list[Put[Asked]]:
        accepted: list[Put[Asked]] = []
        handled = self.usual.accept([request], 0, peer, accepted=accepted)
        assert handled == len(accepted)
        return accepted


def looked_up(command: Callable[[], RemotingCommand] = lambda: send_request(b"x", queue_id=1)) -> UsualSend:
    return all_looked_up(command(), command(), command())[-1]


def all_looked_up(*commands: RemotingCommand) -> list[UsualSend]:
    """Those behind the first, from which it is learned."""
    decoder = RequestDecoder(UsualSends(), frame_size_max=1 << 20, header_size_max=1 << 16)
    found: list[UsualSend] = []
    for opaque, command in enumerate(commands, 11):
        command.opaque = opaque
        (request,) = decoder.receive_data(command.encode())
        assert isinstance(request, UsualSend) == (opaque > 11)
        if isinstance(request, UsualSend):
            found.append(request)
    return found


def test_a_destination_is_asked_for_once() -> None:
    broker, request = Broker(), looked_up()
    assert broker.accept(request)
    assert broker.accept(request)
    assert broker.asked == 1


def test_a_topic_that_changes_is_asked_for_again() -> None:
    broker, request = Broker(), looked_up()
    assert broker.accept(request)
    broker.topics.learn_queue("other", 0)
    assert broker.accept(request)
    assert broker.asked == 2
    broker.topics.learn_queue("other", 1)
    broker.refuses = True
    assert not broker.accept(request)


@pytest.mark.parametrize("peer", ["", "[2001:db8::1]:999", "unknown"])
def test_who_has_no_ipv4_address_goes_the_general_way(peer: str) -> None:
    broker, request = Broker(), looked_up()
    assert broker.accept(request)
    assert not broker.accept(request, peer=peer)
    assert not Broker(store_host="[2001:db8::2]:10911").accept(request)


@pytest.mark.parametrize("queue_id", [-1, -5])
def test_a_queue_for_the_broker_to_choose_is_chosen_each_time(queue_id: int) -> None:
    assert not Broker().accept(looked_up(lambda: send_request(b"x", queue_id=queue_id)))


def test_a_new_topic_is_not_made_here() -> None:
    broker = Broker()
    assert not broker.accept(looked_up(lambda: send_request(b"x", topic="new")))
    assert not broker.asked


@pytest.mark.parametrize(
    ("learned_from", "usual", "odd"),
    [
        ("UNIQ_KEY\x01abcd", "TRAN_MSG\x01none", "TRAN_MSG\x01true"),
        ("UNIQ_KEY\x01abcde\x02T\x01xx", "A\x01bcdefg\x02NAMES\x013333", "A\x01bcdefg\x02DELAY\x013333"),
        ("UNIQ_KEY\x01abcd\x02T\x01xxx", "A\x01bcdefg\x02NAME\x01false", "A\x01bcdefg\x02WAIT\x01false"),
        ("MY_UNIQ_KEY\x01abcd", "T\x01\x02TRAN_MSG\x01none", "T\x01\x02TRAN_MSG\x01true"),
    ],
)
def test_only_a_unique_key_may_be_anything(learned_from: str, usual: str, odd: str) -> None:
    """Other properties may have something at its place."""
    broker = Broker()
    requests = all_looked_up(
        *[send_request(b"x", queue_id=1, properties=text) for text in (learned_from, *[usual] * 4, odd)]
    )
    for request in requests:
        properties = request.command.ext_fields["i"].encode()
        try:
            expected = StoredProperties("c").make(properties, batch=False)
        except SendRefusedError:
            expected = (b"", False, None)
        if not expected[0] or expected[2] is not None:
            assert not broker.accept(request)
        else:
            (put,) = broker.accept(request)
            assert isinstance(put.request, PreparedRecord)
            assert put.request.tail.endswith(expected[0])
            assert put.wait == expected[1]
