"""Producer and consumer, for trio and for plain synchronous code.

async with open_producer("127.0.0.1:10911") as producer:
    result = await producer.send(Message("TopicTest", b"hello", tags="TagA"))

with SyncConsumer("127.0.0.1:10911", "TopicTest") as consumer:
    for message in consumer.poll(timeout_s=5):
        print(message.body)

To a broker that speaks TLS: ``network=tls_network(TlsOptions(trust="ca.pem", cert="me.pem", key="me.key"))``.
"""

from rmqha.client.consumer import Consumer, ConsumerOptions, open_consumer
from rmqha.client.message import Message, MessageExt, MessageQueue
from rmqha.client.pipeline import Pipeline
from rmqha.client.producer import Producer, ProducerOptions, open_producer
from rmqha.client.results import PullResult, PullStatus, SendOutcome, SendResult, SendStatus
from rmqha.client.sync import SyncConsumer, SyncProducer
from rmqha.tls import TlsOptions, tls_network

__all__ = [
    "Consumer",
    "ConsumerOptions",
    "Message",
    "MessageExt",
    "MessageQueue",
    "Pipeline",
    "Producer",
    "ProducerOptions",
    "PullResult",
    "PullStatus",
    "SendOutcome",
    "SendResult",
    "SendStatus",
    "SyncConsumer",
    "SyncProducer",
    "TlsOptions",
    "open_consumer",
    "open_producer",
    "tls_network",
]
