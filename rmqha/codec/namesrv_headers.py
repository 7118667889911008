"""The headers of a name server's requests and answers; see :mod:`rmqha.codec.headers`.

Source: spec: remoting §2.3.
"""

from dataclasses import dataclass

from rmqha.codec.headers import Int32, Int64


@dataclass(frozen=True, slots=True)
class RegisterBrokerRequestHeader:
    """103 REGISTER_BROKER; ``body_crc32`` is 0 if it is not to be checked."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    compressed: bool = False
    body_crc32: Int32 = 0


@dataclass(frozen=True, slots=True)
class RegisterBrokerResponseHeader:
    """Where a slave's master serves slaves and clients; nothing if it has none, or is a master."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerRequestHeader:
    """104 UNREGISTER_BROKER and 322 QUERY_DATA_VERSION."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@dataclass(frozen=True, slots=True)
class QueryDataVersionResponseHeader:
    """Whether a broker's topics are others than those that it registered last."""

    changed: bool


@dataclass(frozen=True, slots=True)
class PutKVConfigRequestHeader:
    """100 PUT_KV_CONFIG."""

    namespace: str
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class KVConfigRequestHeader:
    """101 GET_KV_CONFIG and 102 DELETE_KV_CONFIG."""

    namespace: str
    key: str


@dataclass(frozen=True, slots=True)
class GetKVConfigResponseHeader:
    """Answer to 101."""

    value: str


@dataclass(frozen=True, slots=True)
class GetKVListByNamespaceRequestHeader:
    """219 GET_KVLIST_BY_NAMESPACE."""

    namespace: str


@dataclass(frozen=True, slots=True)
class WritePermOfBrokerRequestHeader:
    """205 WIPE_WRITE_PERM_OF_BROKER and 327 ADD_WRITE_PERM_OF_BROKER."""

    broker_name: str


@dataclass(frozen=True, slots=True)
class DeleteTopicInNamesrvRequestHeader:
    """216 DELETE_TOPIC_IN_NAMESRV; without a cluster in all of them."""

    topic: str
    cluster_name: str | None = None


@dataclass(frozen=True, slots=True)
class GetTopicsByClusterRequestHeader:
    """224 GET_TOPICS_BY_CLUSTER."""

    cluster: str
