"""A client in C++, by the Python module that its library comes with. Args: as Exchange.java's."""

import hashlib
import os
import sys
import time

from rocketmq.client import Message, Producer, PullConsumer, RecvMessage, SendStatus
from rocketmq.exceptions import RocketMQException
from rocketmq.ffi import MSG_CALLBACK_FUNC, dll

CONSUMED, CONSUME_LATER = 0, 1
NAME_SERVERS, NAME, TASK, *WORDS = sys.argv[1:]


def tell(line: str) -> None:
    """In one piece: the library's threads call back."""
    os.write(1, f"{line}\n".encode())


def message_of(way: str, number: int) -> Message:
    message = Message("again" if way == "again" else f"from-{NAME}")
    key = f"{NAME}-{way}-{number}"
    message.set_tags(way)
    message.set_keys(key)
    message.set_property("word", "é漢")
    message.set_body(f"{key} é漢 " + ("x" * 8000 if way == "large" else ""))
    if way == "delayed":
        message.set_delay_time_level(1)
    return message


def send_at_last(producer: Producer, message: Message) -> object:
    while True:
        try:
            return producer.send_sync(message)
        except RocketMQException as error:
            tell(f"again after {error}")
            time.sleep(0.5)


def send(producer: Producer, way: str, count: int) -> None:
    results = []
    messages = [message_of(way, number) for number in range(count)]
    if way == "batch":
        results = [producer.send_batch(messages[at : at + 10]) for at in range(0, count, 10)]
    elif way == "async":
        for message in messages:
            producer.send_async(message, results.append, lambda error: tell(str(error)))
        while len(results) < count:
            time.sleep(0.01)
    elif way == "oneway":
        for message in messages:
            producer.send_oneway(message)
    elif way == "ordered":
        results = [producer.send_orderly(message, number % 3) for number, message in enumerate(messages)]
    elif way == "first":
        results = [send_at_last(producer, message) for message in messages]
    else:
        results = [producer.send_sync(message) for message in messages]
    assert all(result.status == SendStatus.OK for result in results)


def send_all() -> None:
    producer = Producer(f"senders-{NAME}", timeout=30_000)
    producer.set_namesrv_addr(NAME_SERVERS)
    producer.start()
    for word in WORDS:
        way, _, count = word.partition(":")
        send(producer, way, int(count))
    tell("sent")
    producer.shutdown()


def tell_got(consumer: str, message: RecvMessage) -> None:
    digest = hashlib.md5(message.body + message["word"]).hexdigest()
    tell(f"got {consumer} {message.keys.decode()} {message.tags.decode()} {message.reconsume_times} {digest}")


def concurrent(_: object, handle: int) -> int:
    """What comes again comes with all that it was pulled with: hence a topic of its own."""
    message = RecvMessage(handle)
    if message.tags == b"again" and message.reconsume_times == 0:
        return CONSUME_LATER
    tell_got("concurrent", message)
    return CONSUMED


def orderly(_: object, handle: int) -> int:
    tell_got("orderly", RecvMessage(handle))
    return CONSUMED


def push(consumer: str, callback: object) -> None:
    """By the library itself: its Python module takes what raised for consumed."""
    handle = dll.CreatePushConsumer(f"{NAME}-{consumer}".encode())
    dll.SetPushConsumerNameServerAddress(handle, NAME_SERVERS.encode())
    dll.SetPushConsumerInstanceName(handle, f"{NAME}-{consumer}".encode())
    tags, *topics = WORDS
    for topic in topics:
        dll.Subscribe(handle, topic.encode(), tags.encode())
    register = dll.RegisterMessageCallbackOrderly if consumer == "orderly" else dll.RegisterMessageCallback
    register(handle, callback)
    assert dll.StartPushConsumer(handle) == 0


def pull() -> None:
    consumer = PullConsumer(f"{NAME}-pull")
    consumer.set_namesrv_addr(NAME_SERVERS)
    consumer.start()
    tags, *topics = WORDS
    while True:
        for topic in topics:
            for message in consumer.pull(topic, tags):
                tell_got("pull", message)
        time.sleep(0.1)


if TASK == "send":
    send_all()
else:
    callbacks = {"concurrent": MSG_CALLBACK_FUNC(concurrent), "orderly": MSG_CALLBACK_FUNC(orderly)}
    for name, callback in callbacks.items():
        push(name, callback)
    pull()
