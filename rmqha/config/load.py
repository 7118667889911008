"""From files and command line to one checked :class:`BrokerConfig`."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Final

from rmqha.config.acl_config import AclConfig
from rmqha.config.broker_config import BrokerConfig
from rmqha.config.derive import derive
from rmqha.config.dledger_broker_config import DLedgerBrokerConfig
from rmqha.config.ha_config import HAConfig
from rmqha.config.key import METADATA, Key
from rmqha.config.listener_config import ListenerConfig
from rmqha.config.metrics_config import BrokerMetricsConfig
from rmqha.config.name_servers_config import NameServersConfig
from rmqha.config.relations import check_relations
from rmqha.config.rocketmq_keys import FORMER_NAMES, REFUSED, UNUSED
from rmqha.config.settings import COMMAND_LINE, KeyTable, Setting, parse_settings, read_file
from rmqha.config.store_config import StoreConfig
from rmqha.config.tls_config import TlsConfig
from rmqha.config.transaction_config import TransactionConfig
from rmqha.errors import ConfigError


def _table() -> dict[str, Key]:
    sections = (
        ("Store", StoreConfig),
        ("Replication", HAConfig),
        ("TLS", TlsConfig),
        ("Access control", AclConfig),
        ("DLedger", DLedgerBrokerConfig),
        ("Transactions", TransactionConfig),
        ("Name servers", NameServersConfig),
        ("Clients' port", ListenerConfig),
        ("Monitoring", BrokerMetricsConfig),
        ("Broker", BrokerConfig),
    )
    table: dict[str, Key] = {}
    for section, owner in sections:
        for declared in fields(owner):
            key: Key | None = declared.metadata.get(METADATA)
            if key is not None and key.name not in table:
                table[key.name] = replace(key, attribute=declared.name, section=section)
    return table


KEYS: Final[dict[str, Key]] = _table()
"""Every key that has an effect, by name."""
TABLE: Final = KeyTable(KEYS, unused=UNUSED, refused=REFUSED, former=FORMER_NAMES)


def load_config(
    path: str | Path | None,
    overrides: Mapping[str, str] | None = None,
    *,
    defaults: Mapping[str, str] | None = None,
) -> BrokerConfig:
    """Return the checked configuration.

    Args:
        path: a broker.conf, or None for the defaults alone.
        overrides: keys as in the file that win over it.
        defaults: keys as in the file that it wins over (a command's own defaults).

    Raises:
        ConfigError: one line for every problem, ``file:line: reason``; nothing may be started with it.
    """
    problems: list[str] = []
    settings = [Setting(key, value, "default") for key, value in (defaults or {}).items()]
    if path is not None:
        settings += read_file(path, problems)
    settings += [Setting(key, value, COMMAND_LINE) for key, value in (overrides or {}).items()]
    notes: list[str] = []
    values, origins = parse_settings(settings, TABLE, problems=problems, notes=notes)
    if problems:
        raise ConfigError(problems)
    config = derive(values, notes)
    config = replace(config, notes=tuple(notes), origins=origins)
    problems = check_relations(config)
    if problems:
        raise ConfigError(problems)
    return config
