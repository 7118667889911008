from typing import Any

import pytest

from rmqha.cli.message_filter import MessageFilter
from rmqha.codec.properties import format_properties
from rmqha.codec.record.message import StoredMessage

PROPERTIES = {"TAGS": "new", "KEYS": "4711 a-1", "UNIQ_KEY": "7F01"}


def message(**fields: Any) -> StoredMessage:
    values: dict[str, Any] = {
        "physical_offset": 0, "store_size": 100, "body_crc": 0, "queue_id": 3, "flag": 0, "queue_offset": 0,
        "sys_flag": 0, "born_timestamp_ms": 0, "born_host_raw": bytes(8), "store_timestamp_ms": 1000,
        "store_host_raw": bytes(8), "reconsume_times": 0, "prepared_transaction_offset": 0, "body": b"b",
        "topic": "orders", "properties_raw": format_properties(PROPERTIES),
    }  # fmt: skip
    return StoredMessage(**values | fields)


@pytest.mark.parametrize(
    ("fields", "taken"),
    [
        ({}, True),
        ({"topics": ("orders", "other")}, True),
        ({"topics": ("other",)}, False),
        ({"queue_ids": (3,)}, True),
        ({"queue_ids": (4,)}, False),
        ({"tags": ("new",)}, True),
        ({"tags": ("old",)}, False),
        ({"keys": ("a-1",)}, True),
        ({"keys": ("7F01",)}, True),
        ({"keys": ("4711 a-1",)}, False),
        ({"keys": ("471",)}, False),
        ({"since_ms": 1000}, True),
        ({"since_ms": 1001}, False),
        ({"until_ms": 1000}, False),
        ({"until_ms": 1001}, True),
        ({"topics": ("orders",), "tags": ("new",), "keys": ("x",)}, False),
    ],
)
def test_every_field_that_is_set_must_agree(fields: dict[str, Any], taken: bool) -> None:
    assert MessageFilter(**fields).takes(message()) is taken


def test_a_message_without_properties_has_no_tag_and_no_key() -> None:
    bare = message(properties_raw=b"")
    assert MessageFilter().takes(bare)
    assert not MessageFilter(tags=("new",)).takes(bare)
    assert not MessageFilter(keys=("4711",)).takes(bare)
