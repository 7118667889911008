"""MessageQueue, one queue of one broker, as mqadmin's bodies name it: often as a key.

    {"brokerName":"broker-a","queueId":0,"topic":"TopicTest"}

Source: spec: remoting §1.9, §2.1.
"""

from rmqha.codec import java_json
from rmqha.codec.java_json import ObjectKey


def message_queue(topic: str, queue_id: int, *, broker_name: str) -> dict[str, object]:
    """The queue as a value."""
    return {"brokerName": broker_name, "queueId": queue_id, "topic": topic}


def message_queue_key(topic: str, queue_id: int, *, broker_name: str) -> ObjectKey:
    """The queue as a key, which fastjson writes as an object."""
    return ObjectKey(java_json.dumps(message_queue(topic, queue_id, broker_name=broker_name)))
