"""What the store is told is what the operator configured."""

from dataclasses import fields

import pytest

from rmqha.broker import options
from rmqha.broker.tuning import Tuning
from rmqha.config import load_config
from rmqha.store.cleaner import CleanOptions
from rmqha.store.store_options import StoreOptions

MADE_HERE = {
    StoreOptions: {"sync_flush", "in_memory_bytes", "delay_levels_ms", "open_files_max", "clean"},
    CleanOptions: {"disk_max_used_percent", "clean_forcibly_percent", "disk_full_percent", "first_after_s"},
}
NO_KEYS = {"flush_consume_queue_least_pages", "delete_consume_queue_files_interval_s"}
CONFIGURED = {
    "storePathRootDir": "/store",
    "listenPort": "10911",
    "brokerIP1": "10.0.0.1",
    "brokerName": "a",
    "allowInsecure": "true",
}


@pytest.mark.parametrize("kind", MADE_HERE)
def test_every_option_of_the_store_is_a_setting_or_made_of_some(kind: type[StoreOptions] | type[CleanOptions]) -> None:
    config = load_config(None, CONFIGURED)
    lacking = {field.name for field in fields(kind) if not hasattr(config, field.name)}
    assert lacking <= MADE_HERE[kind] | NO_KEYS, "a default that no operator can change"


def test_settings_reach_the_store() -> None:
    changed = {"flushIntervalCommitLog": "123", "maxMessageSize": "4567", "fileReservedTime": "5", "deleteWhen": "07"}
    made = options.store_options(load_config(None, CONFIGURED | changed), Tuning())
    assert (made.flush_interval_commit_log_s, made.max_message_size) == (0.123, 4567)
    assert (made.clean.file_reserved_time_s, made.clean.delete_when) == (5 * 3600.0, frozenset({7}))
