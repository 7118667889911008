"""What brokers register: bodies as Java wrote them, compressed ones, and those of strangers."""

import json
import random
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.codec import register_broker
from rmqha.codec.register_broker import DataVersion, RegisteredTopics, check_name
from rmqha.codec.route import QueueData
from rmqha.errors import RemoteProtocolError

GOLDEN = Path(__file__).parent.parent / "golden" / "remoting" / "slave-sync" / "frames.jsonl"
FRAMES = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
BODIES = [frame["body"] for frame in FRAMES if frame.get("name") == "REGISTER_BROKER"]


def read(body: bytes, *, version: int = 409, compressed: bool = False) -> tuple[DataVersion, dict[str, QueueData]]:
    reader = RegisteredTopics(body, "a", version=version, compressed=compressed)
    topics = dict(filter(None, reader))
    return reader.data_version, topics


def block(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def compressed_body(*topics: str, count: int | None = None) -> bytes:
    version = block(b'{"counter":3,"timestamp":1700000000000}')
    entries = b"".join(block(topic.encode()) for topic in topics)
    count = len(topics) if count is None else count
    return zlib.compress(version + struct.pack(">i", count) + entries + block(b"[]"))


@pytest.mark.parametrize("body", BODIES)
def test_a_body_of_javas_says_what_json_says(body: str) -> None:
    wrapper = json.loads(body)["topicConfigSerializeWrapper"]
    version, topics = read(body.encode())
    assert version._asdict() == wrapper["dataVersion"]
    table = wrapper["topicConfigTable"]
    assert topics.keys() == table.keys()
    assert "TBW102" in topics
    for name, queues in topics.items():
        entry = table[name]
        numbers = (entry["readQueueNums"], entry["writeQueueNums"], entry["perm"], entry["topicSysFlag"])
        assert queues == QueueData("a", *numbers)


def test_a_broker_of_an_early_version_sends_the_wrapper_alone() -> None:
    wrapper = json.dumps(json.loads(BODIES[0])["topicConfigSerializeWrapper"]).encode()
    assert read(wrapper, version=36) == read(BODIES[0].encode())


@pytest.mark.parametrize("name", ["", "x" * 256, "\ud800"], ids=["empty", "long", "half a pair"])
def test_a_topic_whose_name_cannot_be_kept_is_left_out_and_not_the_broker(name: str) -> None:
    """A RocketMQ broker makes %RETRY% and a group's name, of 255 characters: all of it was in no route any more."""
    table: dict[str, dict[str, int]] = {name: {}, "t": {}, "u" * 255: {}}
    body = json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": table}}).encode()
    reader = RegisteredTopics(body, "a", version=409, compressed=False)
    assert dict(filter(None, reader)).keys() == {"t", "u" * 255}
    assert (reader.left_out, reader.why_left_out.startswith("a topic's name")) == (1, True)


def test_names_that_are_left_out_count_as_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a body of such names is read to its end, however many they are."""
    monkeypatch.setattr(register_broker, "TOPICS_MAX", 3)
    for count in (3, 4):
        table: dict[str, dict[str, int]] = {"x" * (300 + number): {} for number in range(count)}
        body = json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": table}}).encode()
        reader = RegisteredTopics(body, "a", version=409, compressed=False)
        if count == 3:
            assert (list(filter(None, reader)), reader.left_out) == ([], 3)
        else:
            with pytest.raises(RemoteProtocolError, match="more than 3 topics"):
                list(reader)


def test_members_in_any_order_and_unknown_ones_are_taken() -> None:
    body = (
        b'{"x":[1,2],"topicConfigSerializeWrapper":{"topicConfigTable":{"t":{"perm":"6","attributes":{"a":"b"}}},'
        b'"dataVersion":{"counter":"5","timestamp":7,"stateVersion":0}},"filterServerList":null}'
    )
    assert read(body) == (DataVersion(7, 5), {"t": QueueData("a", 16, 16, 6)})
    assert read(b'{"topicConfigSerializeWrapper":null}') == (DataVersion(), {})
    assert read(b'{"topicConfigSerializeWrapper":{"dataVersion":null,"topicConfigTable":null}}') == (DataVersion(), {})
    assert read(b"") == (DataVersion(), {})


def test_a_compressed_body_says_the_same() -> None:
    body = compressed_body("t 8 4 6 SINGLE_TAG", "u 1 1 4 MULTI_TAG")
    expected = {"t": QueueData("a", 8, 4, 6), "u": QueueData("a", 1, 1, 4)}
    assert read(body, compressed=True) == (DataVersion(1700000000000, 3), expected)


@pytest.mark.parametrize(
    "body",
    [
        b"\xff",
        b"[]",
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":7}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":{"perm":1e99}}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":{"perm":Infinity}}}}',
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":{"perm":null}}}}',
        b'{"topicConfigSerializeWrapper":{"dataVersion":[1]}}',
        b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":99999999999999999999}}}',
    ],
)
def test_what_is_no_registration_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read(body)


@pytest.mark.parametrize(
    "body",
    [
        b"no zlib",
        zlib.compress(b""),
        zlib.compress(block(b"no json")),
        zlib.compress(struct.pack(">i", -1)),
        zlib.compress(struct.pack(">i", 1 << 30)),
        compressed_body("t 8 4"),
        compressed_body("t 8 4 x SINGLE_TAG"),
        compressed_body("t 1 1 6 SINGLE_TAG", count=2),
        compressed_body("t 8 4 6 SINGLE_TAG")[:-20],
    ],
)
def test_what_is_no_compressed_registration_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read(body, compressed=True)


def test_a_bomb_is_not_inflated() -> None:
    topic = block(b"t 1 1 6 SINGLE_TAG" + b" " * 4000)
    head = block(b"{}") + struct.pack(">i", 1 << 20)
    bomb = zlib.compressobj()
    body = bomb.compress(head) + b"".join(bomb.compress(topic * 1000) for _ in range(20)) + bomb.flush()
    with pytest.raises(RemoteProtocolError, match="inflates to more than"):
        read(body, compressed=True)


def test_to_inflate_copies_no_more_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """What zlib leaves of its input it copies, for each piece that it gives."""
    given, decompressobj = list[int](), zlib.decompressobj

    class Stream:
        def __init__(self) -> None:
            self._stream = decompressobj()

        def decompress(self, data: bytes, size_max: int) -> bytes:
            given.append(len(data))
            return self._stream.decompress(data, size_max)

        @property
        def unconsumed_tail(self) -> bytes:
            return self._stream.unconsumed_tail

        @property
        def eof(self) -> bool:
            return self._stream.eof

    monkeypatch.setattr(zlib, "decompressobj", Stream)
    topics = [f"t{number} 1 1 6 {random.Random(number).randbytes(1000).hex()}" for number in range(1000)]
    body = compressed_body(*topics)
    assert len(read(body, compressed=True)[1]) == 1000
    assert sum(given) < 2 * len(body)


@given(st.binary(max_size=200), st.booleans())
def test_noise_is_an_error_of_ours(noise: bytes, compressed: bool) -> None:
    try:
        read(zlib.compress(noise) if compressed else noise, compressed=compressed)
    except RemoteProtocolError:
        return
    assert compressed or not noise or noise.strip() in (b"null", b"{}")


def test_blanks_are_not_skipped_without_end() -> None:
    assert read(b"{" + b" " * 4000 + b"}") == (DataVersion(), {})
    with pytest.raises(RemoteProtocolError):
        read(b"{" + b" " * 10_000 + b"}")


@pytest.mark.parametrize("name", ["", "x" * 256, "\ud800"])
def test_a_name_is_some_text(name: str) -> None:
    with pytest.raises(RemoteProtocolError):
        check_name("broker", name)


def test_every_step_is_a_short_one() -> None:
    """However a body is made: its reader may let others have their turn."""
    body = b'{"topicConfigSerializeWrapper":{' + b'"x":0,' * 1000 + b'"y":0},' + b'"x":0,' * 1000 + b'"y":0}'
    assert len(list(RegisteredTopics(body, "a", version=409, compressed=False))) >= 2000


def test_more_topics_than_are_taken_end_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_broker, "TOPICS_MAX", 2)
    with pytest.raises(RemoteProtocolError, match="more than 2 topics"):
        read(compressed_body(*(f"t{number} 1 1 6 SINGLE_TAG" for number in range(3))), compressed=True)
