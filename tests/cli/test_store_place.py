from pathlib import Path

from rmqha.cli.store_place import deleted_queues
from rmqha.store.os_disk import OsDisk


def test_what_was_deleted_with_its_topic_is_in_the_table_of_topics(tmp_path: Path) -> None:
    assert deleted_queues(OsDisk(), str(tmp_path)) == {}
    (tmp_path / "config").mkdir()
    table = '{"topicConfigTable":{},"deletedTopics":{"t":{"before":5,"queues":{0:3}}}}'
    (tmp_path / "config" / "topics.json").write_text(table)
    assert deleted_queues(OsDisk(), str(tmp_path)) == {("t", 0): (3, 5)}
