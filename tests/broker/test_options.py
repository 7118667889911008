"""What the parts of a broker are told is what the operator configured, and a default stands in one place."""

from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

import pytest

from rmqha.broker import options
from rmqha.broker.tables.system_topics import TopicRules
from rmqha.broker.tuning import Tuning
from rmqha.codec.consume_queue import UNIT_SIZE
from rmqha.codec.delay_level import DELAY_LEVELS_MS
from rmqha.codec.transfer import BODY_SIZE_MAX
from rmqha.config import KEYS, load_config
from rmqha.config.derive import CONSUME_QUEUE_UNIT_SIZE
from rmqha.config.ha_config import FRAME_SIZE_MAX
from rmqha.ha.options import HAClientOptions, HAOptions
from rmqha.remoting.limits import RemotingLimits
from rmqha.replication.master_session import MasterSettings
from rmqha.store.cleaner import CleanOptions
from rmqha.store.store_options import StoreOptions

KINDS: tuple[Any, ...] = (
    StoreOptions,
    CleanOptions,
    HAOptions,
    HAClientOptions,
    MasterSettings,
    RemotingLimits,
    TopicRules,
)
UNDECIDED = {
    *("flush_consume_queue_least_pages", "delete_consume_queue_files_interval_s", "connect_timeout_s"),
    *("in_flight_share_bytes", "connection_outgoing_bytes_max", "outgoing_bytes_max", "outgoing_share_bytes"),
    *("owed_bytes_max", "frame_size_max", "header_size_max"),
    *("frame_timeout_s", "write_timeout_s"),
}
"""What neither the operator nor a test decides: it has its default where it stands."""
CONFIGURED = {
    "storePathRootDir": "/store",
    "listenPort": "10911",
    "brokerIP1": "10.0.0.1",
    "brokerName": "a",
    "allowInsecure": "true",
}


def with_default(kind: Any) -> Iterator[str]:
    for field in fields(kind):
        if field.default is not MISSING or field.default_factory is not MISSING:
            yield field.name


@pytest.mark.parametrize("kind", KINDS)
def test_a_default_is_said_once(kind: Any) -> None:
    """Of what an operator decides in the table of keys; of what a test makes small in Tuning."""
    decided = {key.attribute for key in KEYS.values()} | {field.name for field in fields(Tuning)}
    assert set(with_default(kind)) <= UNDECIDED
    assert not UNDECIDED & decided


def test_numbers_that_the_table_of_keys_cannot_import_are_the_same_there() -> None:
    assert (FRAME_SIZE_MAX, CONSUME_QUEUE_UNIT_SIZE) == (BODY_SIZE_MAX, UNIT_SIZE)
    assert load_config(None).message_delay_level == tuple(delay_ms / 1000 for delay_ms in DELAY_LEVELS_MS)


def test_settings_reach_sends_and_the_store() -> None:
    changed = {"flushIntervalCommitLog": "123", "maxMessageSize": "4567", "fileReservedTime": "5", "deleteWhen": "07"}
    config = load_config(None, CONFIGURED | changed)
    made = options.store_options(config, Tuning(open_files_max=5))
    assert options.send_rules(config, store_host=bytes(8)).message_size_max == 4567
    assert (made.flush_interval_commit_log_s, made.open_files_max) == (0.123, 5)
    assert (made.clean.file_reserved_time_s, made.clean.delete_when) == (5 * 3600.0, (7,))


def test_settings_reach_replication_and_clients() -> None:
    changed = {"haSendHeartbeatInterval": "1500", "haStartFrom": "last", "maxConnections": "7", "maxQueues": "9"}
    config = load_config(None, CONFIGURED | changed)
    serving, following = options.ha_options(config), options.ha_client_options(config, Tuning(overlap_size=5))
    session = serving.session_settings(4096)
    assert (session.heartbeat_s, session.start_from.value, session.file_size) == (1.5, "last", 4096)
    assert (following.ha_send_heartbeat_interval_s, following.overlap_size) == (1.5, 5)
    limits = options.remoting_limits(config, Tuning(receive_size=3))
    assert (limits.max_connections, limits.receive_size, options.topic_rules(config).max_queues) == (7, 3, 9)
