"""Open a recorded store with ours, and look into its queues."""

from pathlib import Path
from typing import Any

from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.os_disk import OsDisk
from tests import stores
from tests.settings import store_options
from tests.store.helpers import make_store


def open_store(root: Path, name: str) -> DefaultMessageStore:
    """Not loaded yet."""
    properties = stores.settings(name)
    options = store_options(
        str(root),
        mapped_file_size_commit_log=properties["mappedFileSizeCommitLog"],
        mapped_file_size_consume_queue=properties["mappedFileSizeConsumeQueue"],
        max_hash_slot_num=properties["maxHashSlotNum"],
        max_index_num=properties["maxIndexNum"],
    )
    return make_store(options, OsDisk(), now_ms=lambda: 0)


def queues_of(store: DefaultMessageStore) -> dict[str, Any]:
    """As expected-queues.json has it; queues without a message are left out."""
    found: dict[str, Any] = {}
    for queue in store.queues:
        low, high = queue.min_offset_in_queue, queue.max_offset_in_queue
        entries = [[index, *(queue.unit(index) or ())] for index in range(low, high)]
        if entries:
            found.setdefault(queue.topic, {})[str(queue.queue_id)] = {
                "min": low,
                "max": high,
                "maxPhysicOffset": queue.max_physic_offset,
                "entries": entries,
            }
    return found
