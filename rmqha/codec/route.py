"""TopicRouteData: who serves a topic, and with how many queues. The body that answers 105; and ClusterInfo, of 106.

    {"brokerDatas":[{"brokerAddrs":{KEY:"ip:port"},"brokerName":S,"cluster":S}],"filterServerTable":{},
     "orderTopicConf":S?,"queueDatas":[{"brokerName":S,"perm":I,"readQueueNums":I,"topicSysFlag":I,"writeQueueNums":I}]}
    {"brokerAddrTable":{BROKERNAME:{"brokerAddrs":{KEY:"ip:port"},"brokerName":S,"cluster":S}},
     "clusterAddrTable":{CLUSTER:[BROKERNAME]}}

KEY is a broker id: 0 the master, larger the slaves; quoted for clients of version 401 and later, bare for older ones,
of which some take only the bare form. No space, no null, and no boolean before version 413: decoders in the field
split this text by hand.

Source: spec: remoting §2.3.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from rmqha.codec import java_json
from rmqha.errors import RemoteProtocolError

MASTER_ID: Final = 0
PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1
"""Of a topic that is a template: those made after it can be read and written as it says."""
AUTO_CREATE_TOPIC_KEY_TOPIC: Final = "TBW102"
"""The template of topics that a send makes."""
QUEUE_NUMS_MAX: Final = 65_536
"""Queues of a topic on one broker that a client makes room for, whatever a broker says."""
ROUTE_QUEUE_NUMS_MAX: Final = 2 * QUEUE_NUMS_MAX
"""The same, on all brokers of a route together: some 20 MB."""
_STANDARD_JSON_VERSION: Final = 401
_ACTING_MASTER_VERSION: Final = 413


@dataclass(frozen=True, slots=True)
class BrokerData:
    """A master and its slaves: ``broker_addrs`` maps broker ids to ``ip:port``."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str]


@dataclass(frozen=True, slots=True)
class QueueData:
    """A topic's queues on one broker; ``perm`` as in TopicConfig."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


@dataclass(frozen=True, slots=True)
class TopicRouteData:
    """Everything about one topic's route."""

    broker_datas: tuple[BrokerData, ...]
    queue_datas: tuple[QueueData, ...]
    order_topic_conf: str | None = None
    """``broker-a:4;broker-b:4``: the queues that producers of ordered messages use."""


def encode_route(route: TopicRouteData, *, version: int, accept_standard_json_only: bool = False) -> bytes:
    """The body for a client of this protocol ``version``."""
    value = route_json(route, version=version, accept_standard_json_only=accept_standard_json_only)
    return java_json.dumps(value).encode()


def route_json(route: TopicRouteData, *, version: int, accept_standard_json_only: bool = False) -> dict[str, Any]:
    """Its members."""
    quoted = version >= _STANDARD_JSON_VERSION or accept_standard_json_only
    ordered = {} if route.order_topic_conf is None else {"orderTopicConf": route.order_topic_conf}
    return {
        "brokerDatas": [_broker_json(broker, quoted=quoted, version=version) for broker in route.broker_datas],
        "filterServerTable": {},
        **ordered,
        "queueDatas": [_queue_json(queue) for queue in route.queue_datas],
    }


def cluster_info_json(brokers: Iterable[BrokerData], *, version: int) -> dict[str, Any]:
    """The members of ClusterInfo, for a client of this protocol ``version``."""
    quoted, clusters = version >= _STANDARD_JSON_VERSION, dict[str, list[str]]()
    addresses = {}
    for broker in brokers:
        addresses[broker.broker_name] = _broker_json(broker, quoted=quoted, version=version)
        clusters.setdefault(broker.cluster, []).append(broker.broker_name)
    return {"brokerAddrTable": addresses, "clusterAddrTable": clusters}


def _broker_json(broker: BrokerData, *, quoted: bool, version: int) -> dict[str, Any]:
    addrs = {str(key) if quoted else key: addr for key, addr in sorted(broker.broker_addrs.items())}
    acting = {"enableActingMaster": False} if version >= _ACTING_MASTER_VERSION else {}
    return {"brokerAddrs": addrs, "brokerName": broker.broker_name, "cluster": broker.cluster, **acting}


def _queue_json(queue: QueueData) -> dict[str, Any]:
    return {
        "brokerName": queue.broker_name,
        "perm": queue.perm,
        "readQueueNums": queue.read_queue_nums,
        "topicSysFlag": queue.topic_sys_flag,
        "writeQueueNums": queue.write_queue_nums,
    }


def decode_route(body: bytes) -> TopicRouteData:
    """A route as any broker or name server sends it.

    Raises:
        RemoteProtocolError: it does not have this shape, or more queues than are taken.
    """
    value = java_json.loads(body)
    try:
        route = TopicRouteData(
            tuple(_decode_broker(str(entry["brokerName"]), entry) for entry in value["brokerDatas"]),
            tuple(
                QueueData(
                    str(entry["brokerName"]),
                    read_queue_nums=_queue_nums(entry["readQueueNums"]),
                    write_queue_nums=_queue_nums(entry["writeQueueNums"]),
                    perm=int(entry["perm"]),
                    topic_sys_flag=int(entry.get("topicSysFlag", 0)),
                )
                for entry in value["queueDatas"]
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise RemoteProtocolError(f"route data does not parse: {error!r:.200}") from None
    queue_nums = sum(max(queue.read_queue_nums, queue.write_queue_nums, 0) for queue in route.queue_datas)
    if queue_nums > ROUTE_QUEUE_NUMS_MAX:
        raise RemoteProtocolError(
            f"a route with {queue_nums} queues: at most {ROUTE_QUEUE_NUMS_MAX} are taken, of all its brokers together"
        )
    return route


def decode_cluster_info(body: bytes) -> dict[str, BrokerData]:
    """The brokers of ClusterInfo, by name, as any name server sends it.

    Raises:
        RemoteProtocolError: it does not have this shape.
    """
    value = java_json.loads(body)
    try:
        return {str(name): _decode_broker(str(name), entry) for name, entry in value["brokerAddrTable"].items()}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise RemoteProtocolError(f"cluster info does not parse: {error!r:.200}") from None


def _decode_broker(name: str, entry: Any) -> BrokerData:
    addrs = {int(key): str(addr) for key, addr in entry["brokerAddrs"].items()}
    return BrokerData(str(entry.get("cluster", "")), name, addrs)


def _queue_nums(value: Any) -> int:
    nums = int(value)
    if nums > QUEUE_NUMS_MAX:
        raise ValueError(f"{nums:.0e} queues: at most {QUEUE_NUMS_MAX} are taken")
    return nums
