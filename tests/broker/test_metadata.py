"""MetadataService: when the tables are saved."""

import json

import trio
from trio.testing import MockClock

from rmqha.broker.config_files import ConfigFiles
from rmqha.broker.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.metadata import MetadataService
from rmqha.broker.topic_config_manager import TopicConfigManager, TopicRules
from tests.sim.sim_disk import SimDisk


async def test_a_new_topic_is_saved_long_before_the_next_interval(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A RocketMQ broker that opens our store after a kill -9 knows no topic but the saved ones."""
    topics = TopicConfigManager(TopicRules("cluster", "broker"), now_ms=lambda: 0)
    disk = SimDisk()
    files = ConfigFiles(disk.mount(), "/store")
    service = MetadataService(files, topics, ConsumerOffsetManager(), interval_s=1_000_000)
    nursery.start_soon(service.run)
    for topic in ("orders", "payments"):
        topics.create_topic_in_send_message_method(topic, default_topic="TBW102", client_default_topic_queue_nums=4)
        await trio.sleep(1)
        saved = json.loads(disk.files["/store/config/topics.json"].durable)
        assert topic in saved["topicConfigTable"]
