"""Producer and consumer, for trio and for plain synchronous code.

Under trio::

    async with open_producer("127.0.0.1:10911") as producer:
        result = await producer.send(Message("orders", b"one order", tags="new", keys="4711"), retries=16)
        if result.status is not SendStatus.SEND_OK:
            print("stored, but not yet as safe as configured:", result.status)
        await producer.send_batch([Message("orders", b"first"), Message("orders", b"second")])
        async for outcome in producer.send_many(Message("orders", b"%d" % number) for number in range(1000)):
            if isinstance(outcome, RmqhaError):
                print("perhaps not stored:", outcome)

    async with open_consumer("127.0.0.1:10911;127.0.0.1:10921", "orders", group="billing") as consumer:
        while messages := await consumer.poll(timeout_s=3):
            for message in messages:
                print(message.queue.queue_id, message.queue_offset, message.body)
            await consumer.commit()

In plain code::

    with SyncProducer("127.0.0.1:10911") as producer:
        result = producer.send(Message("orders", b"one order"), retries=16, timeout_s=6)

    with SyncConsumer("127.0.0.1:10911", "orders", group="billing") as consumer:
        for message in consumer.poll(timeout_s=5):
            print(message.body)

With ``group=`` a consumer goes on where the group committed last (``commit()``, ``ConsumerOptions.auto_commit_s``).
Or places are the program's own to keep::

    async with open_consumer("127.0.0.1:10911", "orders", start=datetime(2026, 1, 1)) as consumer:
        places = {queue: 0 for queue in consumer.queues}  # or as a database has them
        for queue, offset in places.items():
            consumer.seek(queue, offset)
        for message in await consumer.poll(timeout_s=5):
            print(message.body)
            places[message.queue] = consumer.position(message.queue)

Everything raised on purpose is an ``RmqhaError``, and says in ``retryable`` whether asking again may help:

- ``MQClientError``: the client cannot do what was asked; ``NoRouteError``: no broker for the topic is known.
- ``MQBrokerError``: a broker refused, with ``code`` and ``remark``.
- ``RemotingError``: no answer: ``RemotingConnectError`` (never sent), ``RemotingSendRequestError`` (the connection
  ended), ``RemotingTimeoutError``. ``UnreadableAnswerError``, a RemotingConnectError, is of one that answers nonsense.
- ``RemoteProtocolError``, ``LocalProtocolError``: what came is no answer, or what is to be sent fits no request;
  ``ConfigError``: a certificate cannot be used.

Warnings go to the logger ``rmqha.client`` of the standard library. The client runs under trio; the ``Sync`` classes run
anywhere, under asyncio by ``asyncio.to_thread`` and ``SyncConsumer.poll_in_asyncio``.

To a broker with aclEnable: ``credentials=SessionCredentials(access_key, secret_key)``.
To a broker that speaks TLS: ``network=tls_network(TlsOptions(trust="ca.pem", cert="me.pem", key="me.key"))``.
"""

from rmqha.certificates import TlsOptions
from rmqha.client.consumer import Consumer, open_consumer
from rmqha.client.consumer_options import ConsumerOptions
from rmqha.client.message import Message, MessageExt, MessageQueue
from rmqha.client.pipeline import Pipeline
from rmqha.client.producer import Producer, ProducerOptions, open_producer
from rmqha.client.results import PullResult, PullStatus, SendOutcome, SendResult, SendStatus
from rmqha.client.start import Start
from rmqha.client.sync import SyncConsumer, SyncProducer
from rmqha.codec.acl import SessionCredentials
from rmqha.errors import (
    ConfigError,
    LocalProtocolError,
    MQBrokerError,
    MQClientError,
    NoRouteError,
    RemoteProtocolError,
    RemotingConnectError,
    RemotingError,
    RemotingSendRequestError,
    RemotingTimeoutError,
    RmqhaError,
    UnreadableAnswerError,
)
from rmqha.tls import tls_network

__all__ = [
    "ConfigError",
    "Consumer",
    "ConsumerOptions",
    "LocalProtocolError",
    "MQBrokerError",
    "MQClientError",
    "Message",
    "MessageExt",
    "MessageQueue",
    "NoRouteError",
    "Pipeline",
    "Producer",
    "ProducerOptions",
    "PullResult",
    "PullStatus",
    "RemoteProtocolError",
    "RemotingConnectError",
    "RemotingError",
    "RemotingSendRequestError",
    "RemotingTimeoutError",
    "RmqhaError",
    "SendOutcome",
    "SendResult",
    "SendStatus",
    "SessionCredentials",
    "Start",
    "SyncConsumer",
    "SyncProducer",
    "TlsOptions",
    "UnreadableAnswerError",
    "open_consumer",
    "open_producer",
    "tls_network",
]
