"""Well-formed frames with hostile contents: a broker answers each, or drops the client, and serves the others on."""

import json
from random import Random
from typing import Any

import pytest
import trio

from rmqha.codec.batch import BatchEntry, encode_batch
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import FLAG_ONEWAY, RemotingCommand, SerializeType
from rmqha.codec.send_answers import decode_send_response
from rmqha.errors import RemotingConnectError, RemotingError, RemotingSendRequestError
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_net import SimNet, SimStream

NAMES = [
    *"abcdefghijklmn",
    *[
        "producerGroup",
        "topic",
        "defaultTopic",
        "defaultTopicQueueNums",
        "queueId",
        "sysFlag",
        "bornTimestamp",
        "flag",
        "properties",
    ],
    *[
        "consumerGroup",
        "queueOffset",
        "maxMsgNums",
        "commitOffset",
        "suspendTimeoutMillis",
        "subscription",
        "subVersion",
    ],
    *[
        "expressionType",
        "offset",
        "timestamp",
        "key",
        "maxNum",
        "beginTimestamp",
        "endTimestamp",
        "clientID",
        "group",
        "delayLevel",
    ],
    *[
        "originMsgId",
        "originTopic",
        "unitMode",
        "maxReconsumeTimes",
        "readQueueNums",
        "writeQueueNums",
        "perm",
        "topicFilterType",
    ],
    *[
        "topicSysFlag",
        "order",
        "groupName",
        "removeOffset",
        "brokerName",
        "brokerAddr",
        "clusterName",
        "haServerAddr",
        "brokerId",
    ],
]
VALUES = [
    *[
        "0",
        "1",
        "-1",
        "2",
        "3",
        "7",
        "32",
        "255",
        "2147483647",
        "-2147483648",
        "2147483648",
        "9223372036854775807",
        "-9223372036854775808",
    ],
    *[
        "9223372036854775808",
        "1_0",
        "\uff11",
        "1e3",
        "NaN",
        "true",
        "false",
        "*",
        "TBW102",
        "t",
        "u",
        "group",
        "consumers",
        "TAG",
        "SQL92",
    ],
    *("SCHEDULE_TOPIC_XXXX", "%RETRY%group", "%DLQ%x", "a b", "../../etc", "A || B", " || ", "\0", "\x01", "\x02"),
    *("DELAY\x01" + "9" * 5000, "TAGS\x01\x02" * 3000, "4", "12", "52", "A\x01b\x02" * 4000, "[" * 1000, "a||" * 9000),
    *("DELAY\x011", "DELAY\x01-9999999999", "DELAY\x01x", "TAGS\x01\x02KEYS", "TRAN_MSG\x01true", "WAIT\x01false"),
    *("t" * 127, "t" * 128, "k" * 40_000, "k1 " * 10_000, "日本" * 5000, "\U0001f680", " ", "9" * 5000),
]
BODIES = [
    b"",
    b"x",
    b"\xff" * 100,
    bytes(1000),
    b"x" * 70_000,
    encode_batch([BatchEntry(0, b"x", b"TAGS\x01a")] * 3),
    encode_batch([BatchEntry(-1, b"", b"")] * 40),
    encode_batch([BatchEntry(0, b"x", b"p" * 32767)]),
    encode_batch([BatchEntry(0, b"x" * 60_000, b"")] * 3),
    encode_batch([BatchEntry(0, b"xyz", b"")])[:-1],
    encode_batch([BatchEntry(0, b"xyz", b"TAGS\x01\x02" * 3000)] * 2),
    encode_batch([BatchEntry(0, b"xyz", b"DELAY\x01" + b"9" * 5000)]),
    encode_batch([BatchEntry(0, b"", b"")] * 2000),
    b'[1,{"$ref":"$[' + b"9" * 5000 + b']"}]',
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"t"}]}'
    + b',{"$ref":"$.consumerDataSet[0]"}' * 300
    + b"]}",
    b'{"clientID":' + b"[" * 970 + b"]" * 970 + b"}",
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"t","subVersion":'
    + b"9" * 5000
    + b"}]}]}",
    b"a=b\nc\n=\n\xff",
]
JSON_VALUES: list[object] = [
    None,
    True,
    0,
    -1,
    1 << 70,
    1.5,
    "",
    "x",
    "k" * 5000,
    [],
    {},
    [None],
    [[]],
    [{}],
    {"x": None},
]
JSON_NAMES = [
    *[
        "clientID",
        "consumerDataSet",
        "producerDataSet",
        "groupName",
        "subscriptionDataSet",
        "topic",
        "subString",
        "codeSet",
        "tagsSet",
    ],
    *[
        "subVersion",
        "expressionType",
        "consumeType",
        "messageModel",
        "clientId",
        "consumerGroup",
        "mqSet",
        "brokerName",
        "queueId",
    ],
    *[
        "retryMaxTimes",
        "retryQueueNums",
        "consumeEnable",
        "brokerId",
        "subscriptionData",
        "group",
        "dataVersion",
        "counter",
    ],
]


def hostile_json(random: Random, depth: int = 0) -> object:
    if depth > 3 or random.random() < 0.3:
        return random.choice(JSON_VALUES)
    if random.random() < 0.3:
        return [hostile_json(random, depth + 1) for _ in range(random.randrange(4))]
    return {random.choice(JSON_NAMES): hostile_json(random, depth + 1) for _ in range(random.randrange(6))}


def hostile_request(random: Random) -> RemotingCommand:
    code = random.choice([*RequestCode, *RequestCode, 0, 9999, -1])
    if random.random() < 0.5:  # close to a good one
        request = random.choice([send_request(b"x"), pull_request(0, suspend_ms=1000), send_request(b"x", batch=True)])
        fields = dict(request.ext_fields)
        code = request.code if random.random() < 0.8 else code
    else:
        fields = {name: random.choice(VALUES) for name in NAMES if random.random() < 0.7}
    for name in random.sample(NAMES, random.randrange(5)):
        fields[name] = random.choice(VALUES)
    for name in random.sample(sorted(fields), random.randrange(min(3, len(fields) + 1))):
        del fields[name]
    json_body = json.dumps(hostile_json(random)).encode()
    return RemotingCommand(
        code,
        flag=FLAG_ONEWAY if random.random() < 0.1 else 0,
        version=random.choice([0, 1, 409, 479, -1]),
        ext_fields=fields,
        body=random.choice([*BODIES, json_body, json_body, json_body]),
        serialize=random.choice(list(SerializeType)),
    )


@pytest.mark.parametrize("seed", range(12))
async def test_a_broker_survives_what_clients_make_up(seed: int, virtual_clock: VirtualClock) -> None:
    random = Random(seed)
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker() as broker:
        answered = 0
        for _ in range(8):
            try:
                async with machine.client() as client:
                    for _ in range(20):
                        request = hostile_request(random)
                        if request.is_oneway:
                            client.put_nowait(request.encode())
                        else:
                            await ask(client, request)
                            answered += 1
            except (RemotingSendRequestError, RemotingConnectError):
                continue  # dropped, which is an answer too
        assert answered > 5
        await trio.sleep(61)  # no pull is held longer
        assert broker.fence.bugs == 0
        assert broker.holds.held == 0
        assert broker.store.running_flags.dispatch_error is None
        assert broker.store.reput_from_offset == broker.store.max_offset, "something acknowledged is not seen"
        assert broker.server is not None
        assert broker.server.capacity.used_bytes == 0
        async with machine.client() as client:
            answer = await ask(client, send_request(b"still here", topic="sound"))
            assert answer.code == ResponseCode.SUCCESS
            pulled = await ask(
                client, pull_request(decode_send_response(answer).queue_offset, topic="sound", suspend_ms=5000)
            )
            assert b"still here" in bytes(pulled.body)
        end = broker.store.max_offset
    async with machine.broker() as broker:
        assert broker.store.max_offset == end


async def test_pipelined_garbage_between_good_requests_harms_nobody_else(virtual_clock: VirtualClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker(), machine.client() as good, trio.open_nursery() as nursery:
        async with machine.client() as bad:
            nursery.start_soon(ask_and_expect_nothing, bad)
            await trio.sleep(0.1)
            bad.put_nowait(b"\0\0\0\6\0\0\0\2{]")
            await trio.sleep(1)
            assert bad.closed
        assert (await ask(good, send_request(b"x"))).code == ResponseCode.SUCCESS


async def test_a_client_whose_address_the_kernel_does_not_tell_is_refused(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def accepted(_: SimStream) -> str:
        return "unknown"  # no address of the internet

    monkeypatch.setattr(SimStream, "peer", property(accepted, lambda _stream, _peer: None), raising=False)
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker(), machine.client() as client:
        for _ in range(2):
            assert (await ask(client, send_request(b"x"))).code == ResponseCode.SYSTEM_ERROR


async def ask_and_expect_nothing(client: object) -> None:
    with pytest.raises(RemotingError):
        await ask(client, pull_request(0, topic="TBW102", suspend_ms=15_000))  # type: ignore[arg-type]


@pytest.mark.parametrize("code", RequestCode)
async def test_every_code_with_every_body_is_answered_and_leaves_nothing_in_flight(
    code: RequestCode, virtual_clock: VirtualClock
) -> None:
    """Two-way and one-way: what a request took is given back, and no bug is met (tests/conftest.py)."""
    machine = Machine(SimNet(), "10.0.0.1")
    fields = dict(send_request(b"", batch=True).ext_fields) | dict(pull_request(0).ext_fields) | {"offset": "0"}
    async with machine.broker() as broker, machine.client() as client:
        for body in BODIES:
            request = RemotingCommand(code, ext_fields=fields, body=body, serialize=SerializeType.ROCKETMQ)
            await ask(client, request)
            client.put_nowait(RemotingCommand(code, flag=FLAG_ONEWAY, ext_fields=fields, body=body).encode())
        await trio.sleep(1)  # what is sent while its topic is being deleted is refused
        assert (await ask(client, send_request(b"x"))).code == ResponseCode.SUCCESS
        await trio.sleep(61)
        assert broker.server is not None
        (connection,) = broker.server.connections
        assert connection.in_flight.requests == connection.in_flight.size == broker.server.capacity.used_bytes == 0
        assert broker.store.reput_from_offset == broker.store.max_offset


async def test_a_message_that_was_acknowledged_is_pulled_whatever_its_header_says(virtual_clock: VirtualClock) -> None:
    """Headers at random, of which the broker takes some: each of those is there for consumers."""
    random = Random(7)
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker(), machine.client() as client:
        seen = 0
        for number in range(300):
            fields: dict[str, Any] = {letter: random.choice(VALUES) for letter in "fghij" if random.random() < 0.4}
            answer = await ask(client, send_request(b"body %d;" % number, **fields))
            if answer.code == ResponseCode.SUCCESS and "TRAN_MSG\x01true" not in fields.get("i", ""):
                offset = decode_send_response(answer).queue_offset
                topic = "SCHEDULE_TOPIC_XXXX" if fields.get("i") == "DELAY\x011" else "t"
                pulled = await ask(client, pull_request(offset, topic=topic, suspend_ms=5000, max_num=1))
                assert b"body %d;" % number in bytes(pulled.body), fields
                seen += 1
        assert seen > 20
