"""The data source's options: what they mean, and what a wrong one is told."""

from typing import Any

import pytest

from rmqha.errors import ConfigError
from rmqha.spark import OnCorrupt
from rmqha.spark.schema import COLUMNS
from rmqha.spark.source_options import parse_options


def test_options_are_found_in_any_case() -> None:
    source = parse_options(
        {
            "PATH": "/data/s",
            "subscribe": "orders, audit",
            "startingoffsets": "4096",
            "endingTimestamp": "2026-11-21T10:00:00Z",
            "splitBytes": "64m",
            "onCorrupt": "SKIP",
            "checkCrc": "none",
            "queues": "0,3",
        }
    )
    assert source.logs == {"broker": "/data/s"}
    assert source.read.topics == ("orders", "audit")
    assert source.read.queues == (0, 3)
    assert source.read.ending_timestamp_ms == 1_795_255_200_000
    assert source.read.on_corrupt is OnCorrupt.SKIP
    assert not source.read.check_crc
    assert (source.starting, source.split_bytes) == (4096, 64 << 20)


@pytest.mark.parametrize("zone", ["UTC", "XST+11", "XST-13"], indirect=True)
@pytest.mark.parametrize("option", ["startingTimestamp", "endingTimestamp"])
@pytest.mark.parametrize(
    "text",
    [
        "1795255200000",
        "2026-11-21T10:00:00Z",
        "2026-11-21T10:00:00",
        "2026-11-21 10:00",
        "2026-11-21T12:30:00+02:30",
    ],
)
def test_a_time_means_the_same_on_every_machine(text: str, option: str, zone: str) -> None:
    """Without a zone it is in UTC: tasks, and the next run, may be planned where clocks show another hour."""
    read = parse_options({"path": "/data/s", option: text}).read
    found = read.starting_timestamp_ms if option == "startingTimestamp" else read.ending_timestamp_ms
    assert found == 1_795_255_200_000, zone


def test_several_brokers_have_several_logs() -> None:
    source = parse_options({"path": '{"a": "/a", "b": "s3://b"}', "startingOffsets": '{"a": 1, "b": 2}'})
    assert source.logs == {"a": "/a", "b": "s3://b"}
    assert source.starting == {"a": 1, "b": 2}


def test_negative_numbers_are_kafka_s() -> None:
    source = parse_options(
        {
            "path": '{"a": "/a", "b": "/b"}',
            "startingOffsets": '{"a": -2, "b": -1}',
            "endingOffsets": '{"a": -1, "b": 7}',
        }
    )
    assert source.starting == {"a": "earliest", "b": "latest"}
    assert source.ending == {"a": "latest", "b": 7}


def test_the_layout_says_which_columns_there_are() -> None:
    def columns(**options: str) -> list[str]:
        return list(parse_options({"path": "/data/s", **options}).columns().names)

    kafka = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert columns(layout="Kafka") == columns(layout="kafka", includeHeaders="true") == kafka
    assert columns(layout="kafka", includeHeaders="false") == kafka[:-1]
    assert columns() == columns(layout="rocketmq") == COLUMNS.names
    with pytest.raises(ConfigError, match=r"of 2 logs \(a, b\): each broker counts partitions and offsets for itself"):
        columns(layout="kafka", path='{"a": "/a", "b": "/b"}')


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"subcribe": "x"}, "did you mean 'subscribe'"),
        ({"startingOffsets": "newest"}, "whole number"),
        ({"endingOffsets": "earliest"}, "whole number"),
        ({"endingOffsets": '{"broker": -2}'}, "is no end"),
        ({"startingOffsets": '{"broker": -3}'}, "-3 of 'broker' is no offset"),
        ({"onCorrupt": "ignore"}, "fail, skip or stop"),
        ({"failOnDataLoss": "yes"}, "true or false"),
        ({"splitBytes": "0"}, "from 1 on"),
        ({"startingTimestamp": "yesterday"}, "milliseconds"),
        ({"startingOffsets": "1", "startingTimestamp": "1"}, "not both"),
        ({"path": '{"a": 1}'}, "map broker names"),
        ({"path": "{}"}, "map broker names"),
        ({"path": ""}, "path='': it is empty"),
        ({"path": '{"a": "/a", "b": ""}'}, "it is empty"),
        ({"path": '{"a": "/a", "b": "/b", "a": "/c"}'}, "'a' is there twice"),
        ({"startingOffsets": '{"broker": 0, "broker": 782}'}, "'broker' is there twice"),
        ({"endingOffsets": '{"broker": 7, "broker": 7}'}, "'broker' is there twice"),
        ({"brokerName": ""}, "brokerName='': it is empty"),
        ({"path": '{"a": "/a"}', "brokerName": "b"}, "brokerName"),
        ({"subscribe": ""}, "subscribe='': it is empty, as that of an unset variable is; leave it out to read all"),
        ({"subscribe": " , "}, "it is empty, as that of an unset"),
        ({"subscribe": "orders bills"}, "'orders bills' can be no topic"),
        ({"subscribe": "orders;bills"}, "'orders;bills' can be no topic"),
        ({"subscribe": "a" * 128}, "can be no topic: one has up to 127"),
        ({"subscribePattern": ""}, "a topic pattern is empty"),
        ({"queues": ""}, "queues='': it is empty"),
        ({"keys": ""}, "keys='': it is empty"),
        ({"tags": ""}, "tags='': it is empty"),
        ({"startingOffsets": '{"broker": true}'}, "must map broker names to int"),
        ({"startingOffsets": '{"broker": 1, "other": 2}'}, "startingOffsets names other, but the path has broker"),
        ({"path": '{"a": "/a"}', "endingOffsets": '{"broker": 1, "b": 2}'}, "names b, broker, but the path has a"),
        ({"layout": "pulsar"}, "rocketmq or kafka"),
        ({"includeHeaders": "true"}, "includeHeaders is for layout=kafka"),
        ({"maxOffsetsPerTrigger": "9"}, "'maxOffsetsPerTrigger' is not known here: maxBytesPerTrigger"),
        ({"startingOffsetsByTimestamp": "{}"}, "startingTimestamp is for all queues"),
        ({"kafka.bootstrap.servers": "h:1"}, "the log is read, not a broker"),
    ],
)
def test_a_wrong_option_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_options({"path": "/data/s", **wrong})


def test_the_path_is_needed() -> None:
    with pytest.raises(ConfigError, match="path is missing"):
        parse_options({})
