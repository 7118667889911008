"""The table of topics fits what its slaves can fetch."""

from contextlib import suppress
from dataclasses import replace

import pytest

from rmqha.broker.tables import topic_config_manager
from rmqha.broker.tables.told_topics import told_topic
from rmqha.broker.tables.topic_config import TopicConfig, TopicTable
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.codec import java_json
from rmqha.codec.codes import ResponseCode
from rmqha.codec.deleted_topic import DeletedTopic
from rmqha.codec.remoting import FRAME_SIZE_MAX, RemotingCommand
from rmqha.codec.route import AUTO_CREATE_TOPIC_KEY_TOPIC, PERM_READ
from rmqha.config import load_config
from rmqha.errors import RemoteProtocolError
from tests.settings import topic_rules


def make(topics: TopicConfigManager, topic: str) -> None:
    topics.create_topic_in_send_message_method(
        topic, default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC, client_default_topic_queue_nums=1
    )


def test_no_send_makes_the_table_too_large_to_be_fetched() -> None:
    topics = TopicConfigManager(topic_rules("c", "b"), now_ms=lambda: 1_700_000_000_000)
    made = 0
    with suppress(RemoteProtocolError):
        for made in range(100_000):
            make(topics, f"{made:0127}")
    with pytest.raises(RemoteProtocolError, match="slaves can fetch"):
        make(topics, f"{made:0127}")
    body = java_json.dumps(topics.to_json()).encode()
    assert FRAME_SIZE_MAX * 2 // 3 < len(body) < FRAME_SIZE_MAX
    assert RemotingCommand(ResponseCode.SUCCESS, body=body).encode(), "it is one frame"
    assert topics.select("0" * 127) is not None


def test_the_size_of_the_table_follows_its_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What grows counts once, and a table that is taken over counts instead of the former."""
    topics = TopicConfigManager(topic_rules("c", "b"), now_ms=lambda: 1_700_000_000_000)
    room = sum(topic.json_size for topic in topics) + 2 * 250
    monkeypatch.setattr(topic_config_manager, "TABLE_SIZE_MAX", room)
    saved = topics.to_json()
    make(topics, "first")
    for queue_id in range(20):
        topics.learn_queue("first", queue_id)
    make(topics, "second")
    with pytest.raises(RemoteProtocolError):
        make(topics, "third")
    topics.replace_from_json(java_json.loads(java_json.dumps(saved).encode()))
    make(topics, "fourth")


def test_a_groups_topic_has_no_more_queues_than_a_topic_can() -> None:
    """Groups may come of a RocketMQ broker's table, with any number."""
    topics = TopicConfigManager(topic_rules("cluster", "broker", max_queues=100_000), now_ms=lambda: 1)
    made = topics.create_topic_in_send_message_back_method("%RETRY%g", queue_nums=70_000)
    assert (made.read_queue_nums, made.write_queue_nums) == (65_536, 65_536)


def test_a_topic_that_a_table_taken_over_does_not_have_is_on_no_hosts_account() -> None:
    """A member of a group that follows takes over its leader's table, and may lead again."""
    topics = TopicConfigManager(topic_rules(max_queues=10), now_ms=lambda: 1)
    saved = java_json.loads(java_json.dumps(topics.to_json()).encode())
    for number in range(3):
        topics.create_topic_in_send_message_back_method(f"t{number}", queue_nums=4, peer="10.0.0.1:1")
        with pytest.raises(RemoteProtocolError, match="is not made"):
            topics.create_topic_in_send_message_back_method("u", queue_nums=4, peer="10.0.0.1:1")
        topics.replace_from_json(saved)


@pytest.mark.parametrize("limit", ["queues", "bytes", "share of a host"])
def test_a_deleted_topic_gives_back_its_room(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics come and go; counted on, they would leave a broker full until it is started again."""
    topics = TopicConfigManager(topic_rules(max_queues=10 if limit != "bytes" else 100), now_ms=lambda: 1)
    if limit == "bytes":
        room = sum(topic.json_size for topic in topics) + TopicConfig("t0").json_size
        monkeypatch.setattr(topic_config_manager, "TABLE_SIZE_MAX", room)
    peer, queue_nums = ("10.0.0.1:1", 4) if limit == "share of a host" else ("", 8)

    def create(topic: str) -> None:
        topics.create_topic_in_send_message_back_method(topic, queue_nums=queue_nums, peer=peer)

    for number in range(3):
        create(f"t{number}")
        with pytest.raises(RemoteProtocolError, match="is not made"):
            create("u0")
        topics.delete_topic_config(f"t{number}", {}, before=0)


def decide(topics: TopicConfigManager, how: str) -> None:
    """Somebody who knows says that the topic has two queues to be written, and two to be read."""
    decided = TopicConfig("t", 2, 2)
    if how == "changed":
        topics.update_topic_config(decided)
    elif how == "deleted, and made anew":
        topics.delete_topic_config("t", {}, before=0)
        topics.create_topic_in_send_message_method(
            "t", default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC, client_default_topic_queue_nums=2
        )
    else:
        topics.replace(TopicTable((2, 2), {"t": decided}))


@pytest.mark.parametrize("how", ["changed", "deleted, and made anew", "told by the master"])
def test_the_log_tells_how_many_queues_are_written_only_as_long_as_nobody_else_does(how: str) -> None:
    topics = TopicConfigManager(topic_rules(), now_ms=lambda: 1)
    for queue_id in (0, 3):
        topics.learn_queue("t", queue_id)
        assert topics.select("t") == TopicConfig("t", queue_id + 1, queue_id + 1)
    decide(topics, how)
    assert topics.select("t") == TopicConfig("t", 2, 2)
    topics.learn_queue("t", 3)
    assert topics.select("t") == TopicConfig("t", 4, 2)


def test_a_topic_that_is_known_stays_what_it_is_but_for_the_queues_that_the_log_has() -> None:
    """An operator took queues away, and the log still holds what is in them."""
    topics = TopicConfigManager(topic_rules(), now_ms=lambda: 1)
    known = TopicConfig("t", 1, 1, PERM_READ, "MULTI_TAG", topic_sys_flag=2, order=True)
    topics.update_topic_config(known)
    topics.learn_queue("t", 3)
    assert topics.select("t") == replace(known, read_queue_nums=4)


def test_what_a_slave_learned_in_the_same_millisecond_gives_way_to_its_master() -> None:
    """Both tables have the same version then, and the slave kept a topic with one queue."""
    master, slave = (TopicConfigManager(topic_rules("c", "b"), now_ms=lambda: 1_700_000_000_000) for _ in range(2))
    slave.replace_from_json(java_json.loads(java_json.dumps(master.to_json()).encode()))
    master.update_topic_config(TopicConfig("t", 4, 4))
    slave.learn_queue("t", 0)
    assert slave.data_version == master.data_version
    slave.replace_from_json(java_json.loads(java_json.dumps(master.to_json()).encode()))
    assert slave.select("t") == TopicConfig("t", 4, 4)


def test_a_topic_that_an_operator_makes_is_no_topic_for_clients_before_it_is_saved() -> None:
    """With a disk that hangs sends were acknowledged in it, and a restart knew of fewer queues than clients."""
    topics = TopicConfigManager(topic_rules("c", "b"), now_ms=lambda: 1_700_000_000_000)
    topics.update_topic_config(TopicConfig("t", 4, 4))
    assert "t" in topics.unsaved
    topics.saved.advance(topics.made)
    assert "t" not in topics.unsaved
    topics.update_topic_config(TopicConfig("t", 8, 8))
    assert "t" not in topics.unsaved, "clients know it, and go on with it"


def test_what_only_the_log_has_told_of_is_known_as_that_after_a_restart() -> None:
    """It counted as a topic that somebody had made: of what peers know of it nothing was taken."""
    topics, again = (TopicConfigManager(topic_rules("c", "b"), now_ms=lambda: 0) for _ in range(2))
    topics.learn_queue("learned", 0)
    topics.update_topic_config(TopicConfig("made", 1, 1))
    again.replace_from_json(java_json.loads(java_json.dumps(topics.to_json()).encode()))
    assert again.learned == {"learned"}
    told = {name: TopicConfig(name, 4, 4) for name in ("learned", "made")}
    again.merge(TopicTable((0, 0), told), log_end=0, is_lost=False)
    assert again.select("learned") == TopicConfig("learned", 4, 4)
    assert again.select("made") == TopicConfig("made", 1, 1)


def test_a_topic_that_a_peer_tells_keeps_the_queues_of_which_the_log_here_tells() -> None:
    topics = TopicConfigManager(topic_rules("c", "b"), now_ms=lambda: 0)
    topics.learn_queue("t", 5)
    topics.merge(TopicTable((0, 0), {"t": TopicConfig("t", 4, 4, PERM_READ)}), log_end=0, is_lost=False)
    assert topics.select("t") == TopicConfig("t", 6, 4, PERM_READ)


def test_a_topic_that_was_deleted_and_made_again_with_fewer_queues_has_those() -> None:
    """The log tells of the deleted ones as well, as long as it is not known that they are."""
    topics = TopicConfigManager(topic_rules("c", "b"), now_ms=lambda: 0)
    topics.learn_queue("t", 3)
    deleted = {"t": DeletedTopic(100, {3: 8})}
    topics.merge(TopicTable((0, 0), {"t": TopicConfig("t", 2, 2)}, deleted), log_end=200, is_lost=False)
    assert topics.select("t") == TopicConfig("t", 2, 2)


def test_what_a_process_before_had_learned_from_the_log_is_told_at_once() -> None:
    """Its clients may be reading it, and the master may be gone."""
    config = load_config(None, {})
    topics = TopicConfigManager(topic_rules("c", "b"), now_ms=lambda: 0)
    topics.learn_queue("t", 0)
    assert told_topic(topics, "t", config, follows_tables=True) is None
    again = TopicConfigManager(topic_rules("c", "b"), now_ms=lambda: 0)
    again.replace_from_json(java_json.loads(java_json.dumps(topics.to_json()).encode()))
    assert told_topic(again, "t", config, follows_tables=True) == TopicConfig("t", 1, 1)
    again.learn_queue("new", 0)
    assert told_topic(again, "new", config, follows_tables=True) is None


def test_a_topic_that_another_broker_told_of_is_told_to_nobody_before_it_is_saved() -> None:
    """A crash would take it, and a send to it had been answered."""
    topics = TopicConfigManager(topic_rules(), now_ms=lambda: 1)
    topics.merge(TopicTable((5, 1), {"t": TopicConfig("t", 2, 2)}), log_end=0, is_lost=True)
    config = load_config(None, {})
    assert topics.select("t") is not None
    assert told_topic(topics, "t", config, follows_tables=False) is None
    assert set(topics.unsaved) == set(topics.untold.numbers) == {"t"}
    topics.saved.advance(topics.made)
    assert told_topic(topics, "t", config, follows_tables=False) is not None
