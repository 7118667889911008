"""Route data has exactly the form each version of client can read."""

import pytest

from rmqha.codec.route import BrokerData, QueueData, TopicRouteData, decode_route, encode_route
from rmqha.errors import RemoteProtocolError

ROUTE = TopicRouteData(
    (BrokerData("DefaultCluster", "broker-a", {0: "127.0.0.1:10911"}),),
    (QueueData("broker-a", read_queue_nums=4, write_queue_nums=4, perm=6),),
)
QUEUES = b'"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'


def test_clients_from_4_9_4_on_get_standard_json() -> None:
    assert encode_route(ROUTE, version=409) == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911"},"brokerName":"broker-a","cluster":"DefaultCluster"}],'
        b'"filterServerTable":{},' + QUEUES
    )


@pytest.mark.parametrize("version", [1, 317])
def test_older_clients_get_bare_broker_ids(version: int) -> None:
    assert encode_route(ROUTE, version=version) == (
        b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:10911"},"brokerName":"broker-a","cluster":"DefaultCluster"}],'
        b'"filterServerTable":{},' + QUEUES
    )
    assert b'{"0":' in encode_route(ROUTE, version=version, accept_standard_json_only=True)


def test_clients_of_5_x_get_the_member_their_strict_decoders_need() -> None:
    assert b'"cluster":"DefaultCluster","enableActingMaster":false}' in encode_route(ROUTE, version=479)


@pytest.mark.parametrize("version", [1, 409, 479])
def test_what_is_written_is_read_back(version: int) -> None:
    assert decode_route(encode_route(ROUTE, version=version)) == ROUTE


@pytest.mark.parametrize("body", [b"[]", b'{"brokerDatas":[{}],"queueDatas":[]}', b'{"brokerDatas":1,"queueDatas":[]}'])
def test_other_shapes_are_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_route(body)


def test_the_queues_of_all_brokers_are_bounded_together() -> None:
    def body(count: int) -> bytes:
        queues = tuple(QueueData(f"b{number}", 65_536, 1, perm=6) for number in range(count))
        return encode_route(TopicRouteData((), queues), version=409)

    assert len(decode_route(body(2)).queue_datas) == 2
    with pytest.raises(RemoteProtocolError, match="of all its brokers together"):
        decode_route(body(3))
