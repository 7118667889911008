"""Options as a broker makes them of a configuration that says nothing, with what a test changes."""

from dataclasses import replace
from functools import cache
from typing import Any, Final

from rmqha.broker import options
from rmqha.broker.tables.system_topics import TopicRules
from rmqha.broker.tuning import Tuning
from rmqha.config import BrokerConfig, load_config
from rmqha.ha.options import HAClientOptions, HAOptions
from rmqha.remoting.limits import RemotingLimits
from rmqha.replication.master_session import MasterSettings
from rmqha.store.cleaner import CleanOptions
from rmqha.store.store_options import StoreOptions

IN_MEMORY_BYTES: Final = 1 << 30
"""Whatever machine the tests run on."""


@cache
def config(**keys: str) -> BrokerConfig:
    """A master that waits for a slave, on free ports."""
    return load_config(None, {"brokerRole": "SYNC_MASTER", "listenPort": "0", **keys})


def ha_options(**changes: Any) -> HAOptions:
    return replace(options.ha_options(config()), **changes)


def ha_client_options(**changes: Any) -> HAClientOptions:
    return replace(options.ha_client_options(config(), Tuning()), **changes)


def master_settings(file_size: int, **changes: Any) -> MasterSettings:
    return replace(ha_options().session_settings(file_size), **changes)


def remoting_limits(**changes: Any) -> RemotingLimits:
    return replace(options.remoting_limits(config(), Tuning()), **changes)


def store_options(root: str, **changes: Any) -> StoreOptions:
    made = options.store_options(config(storePathRootDir=root), Tuning())
    small: dict[str, Any] = {"in_memory_bytes": IN_MEMORY_BYTES, "max_hash_slot_num": 100, "max_index_num": 400}
    return replace(made, **(small | changes))


def clean_options(**changes: Any) -> CleanOptions:
    return replace(options.clean_options(config(), Tuning()), **changes)


def topic_rules(broker_cluster_name: str = "cluster", broker_name: str = "broker", **changes: Any) -> TopicRules:
    made = options.topic_rules(config())
    return replace(made, broker_cluster_name=broker_cluster_name, broker_name=broker_name, **changes)
