"""broker.conf, RocketMQ's own configuration file, becomes one frozen :class:`BrokerConfig`.

The fields of :class:`StoreConfig`, :class:`HAConfig` and :class:`BrokerConfig` *are* the table of keys: name,
kind, default, range, meaning and role stand beside each attribute, and validation, ``rmqha config show`` and
``docs/configuration.md`` are all made from it.
"""

from rmqha.config.broker_config import BrokerConfig
from rmqha.config.kinds import split_address, split_told_address
from rmqha.config.load import KEYS, load_config

__all__ = [
    "KEYS",
    "BrokerConfig",
    "load_config",
    "split_address",
    "split_told_address",
]
