"""Where a store's commitlog is, whatever directory was named, and what its tables tell of it."""

from pathlib import Path

import pytest

from rmqha.cli.errors import CliError
from rmqha.cli.store_place import commit_log_directory, deleted_queues
from rmqha.store.os_disk import OsDisk


def test_what_was_deleted_with_its_topic_is_in_the_table_of_topics(tmp_path: Path) -> None:
    assert deleted_queues(OsDisk(), str(tmp_path)) == {}
    (tmp_path / "config").mkdir()
    table = '{"topicConfigTable":{},"deletedTopics":{"t":{"before":5,"queues":{0:3}}}}'
    (tmp_path / "config" / "topics.json").write_text(table)
    assert deleted_queues(OsDisk(), str(tmp_path)) == {("t", 0): (3, 5)}


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("0" * 20, True), ("0" * 19, False), ("0" * 21, False), ("a" * 20, False), ("0000000000000000.tmp", False)],
)
def test_a_directory_of_segments_is_known_by_their_names(name: str, is_one: bool, tmp_path: Path) -> None:
    (tmp_path / "beside").touch()
    (tmp_path / name).touch()
    if is_one:
        assert commit_log_directory(str(tmp_path)) == str(tmp_path)
    else:
        with pytest.raises(CliError, match="there is no commitlog"):
            commit_log_directory(str(tmp_path))
