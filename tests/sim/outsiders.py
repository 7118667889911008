"""Planted bugs that somebody thought of who had not read tests/sim: what survived then has to die now."""

from contextlib import suppress
from math import inf
from typing import Any, Final

import trio

from rmqha.broker.processors import send_message_processor
from rmqha.broker.puts import durability
from rmqha.broker.tables import consumer_offset_manager, metadata
from rmqha.codec.transfer import encode_report
from rmqha.errors import StoreError
from rmqha.ha import catch_up, ha_connection, ha_service, report_sender, slave_connection
from rmqha.remoting import connection, in_flight, response_table
from rmqha.replication.master_session import SendRange
from rmqha.replication.slave_session import SlaveSession
from rmqha.store import consume_queue, message_reader, message_store
from rmqha.store.config_files import TOPICS
from tests.sim.mutant import mutant, nothing

Store: Final = message_store.DefaultMessageStore
Slave: Final = slave_connection.SlaveConnection

_SOURCE: Final = "an outsider"
_store_init = Store.__init__
_release = in_flight.InFlight.release
_commit_offset = consumer_offset_manager.ConsumerOffsetManager.commit_offset
_get_message = message_reader.MessageReader.get_message


def _slaves_show_all(self: Any, parts: Any) -> None:
    _store_init(self, parts)
    if not self.role.is_master:
        parts.confirm_offset._sync_flush, parts.confirm_offset.limit_to = False, nothing


def _fastest_needed(self: Any) -> int | None:
    acked = [c.session.slave_ack_offset for c in self.connections.values() if c.session.is_transferring]
    return max(acked, default=None)


async def _flush_queue_to_its_end(self: Any) -> None:
    for mapped in self.queue.between(self.flushed_offset, self.queue.max_offset):
        await mapped.sync_in_thread()
    self.flushed_offset = self.queue.max_offset


async def _save_topics_made_meanwhile(self: Any) -> None:
    await self._save_if_dirty(self.topics, TOPICS)
    self.topics.saved.advance(self.topics.made)


def _discard_and_give_back(self: Any, opaque: int) -> None:
    if self._pending.pop(opaque, None) is not None:
        self._opaque = opaque - 1


def _release_one(self: Any, _requests: int, size: int) -> None:
    _release(self, 1, size)


def _commit_forwards(self: Any, group: str, topic: str, queue_id: int, *, offset: int, peer: str = "") -> None:
    known = self.query_offset(group, topic, queue_id)
    _commit_offset(self, group, topic, queue_id, offset=max(offset, known or 0))


def _silence_is_an_answer(session: SlaveSession, _there: object) -> bool:
    return not session.is_comparing


async def _stay_after_a_failed_flush(self: Any) -> None:
    with suppress(StoreError):
        await _make_durable(self)


_make_durable = Slave._make_durable


def _register_twice(self: Any) -> bool:
    action = self._next_action()
    if not isinstance(action, SendRange):
        return False
    if action.size > ha_connection._DIRECT_SIZE_MAX:
        self._frame = action
        return False
    if not self._send_directly(action):
        return False
    next_offset = self._connection.session.next_transfer_from_where + 1
    self._waiter = self._connection.service.sendable.add(next_offset, inf, self._send_nowait)
    return True


def _report_into_a_cut_one(self: Any) -> None:
    self._sent_offset = self.reported_offset
    report = encode_report(self._sent_offset)
    taken = self._stream.send_nowait(report)
    self._last_write_at = trio.current_time()
    if taken < len(report):
        self._unsent = report[taken:]
        self._stalled.set()


def _wait_for_the_first_message(self: Any, begin: int, ends: Any, answer: Any) -> None:
    _answer_when_durable(self, begin, ends[:1], lambda statuses: answer(statuses * len(ends)))


def _encode_answers_to_all(self: Any, stored: Any, statuses: Any) -> Any:
    return _encode_answers(self, [((*asked[:2], False, *asked[3:]), result) for asked, result in stored], statuses)


_answer_when_durable = durability.Durability.answer_when_durable
_encode_answers = send_message_processor.SendMessageProcessor._encode_answers


def _skip_one(self: Any, topic: str, queue_id: int, offset: int, **limits: Any) -> Any:
    """Every fourth answer with several messages leads the consumer past one that it did not get."""
    result = _get_message(self, topic, queue_id, offset, **limits)
    is_cut = result.views and result.next_begin_offset < result.max_offset
    return result._replace(next_begin_offset=result.next_begin_offset + 1) if is_cut else result


def plant() -> None:
    """Register them all."""
    mutant("a slave shows what is not durable", _SOURCE, (Store, "__init__", _slaves_show_all))
    mutant(
        "the cleaner spares the fastest slave", _SOURCE,
        (ha_service.HAService, "oldest_needed_offset", _fastest_needed),
    )  # fmt: skip
    mutant(
        "a queue counts as flushed to its end", _SOURCE,
        (consume_queue.ConsumeQueue, "flush_in_thread", _flush_queue_to_its_end),
    )  # fmt: skip
    mutant(
        "topics made during a save count as saved", _SOURCE,
        (metadata.MetadataService, "_save_topics", _save_topics_made_meanwhile),
    )  # fmt: skip
    mutant(
        "a cancelled request gives its opaque back", _SOURCE,
        (response_table.ResponseTable, "discard", _discard_and_give_back),
    )  # fmt: skip
    mutant("answers sent together release one request", _SOURCE, (in_flight.InFlight, "release", _release_one))
    mutant(
        "a commit cannot go back", _SOURCE,
        (consumer_offset_manager.ConsumerOffsetManager, "commit_offset", _commit_forwards),
    )  # fmt: skip
    mutant("a silent peer has answered", _SOURCE, (catch_up, "_has_all", _silence_is_an_answer))
    mutant(
        "a slave whose flush failed stays connected", _SOURCE,
        (Slave, "_make_durable", _stay_after_a_failed_flush),
    )  # fmt: skip
    mutant("an answer leads past a message", _SOURCE, (message_reader.MessageReader, "get_message", _skip_one))
    mutant(
        "what a slave waits for is registered twice", _SOURCE,
        (ha_connection.WriteSocketService, "_is_sent_nowait", _register_twice),
    )  # fmt: skip
    mutant(
        "a report is sent into the middle of a cut one", _SOURCE,
        (report_sender.ReportSender, "_send_now", _report_into_a_cut_one),
    )  # fmt: skip
    mutant(
        "the first message answers for those that came with it", _SOURCE,
        (durability.Durability, "answer_when_durable", _wait_for_the_first_message),
    )  # fmt: skip
    mutant("a one-way send stays in the account", _SOURCE, (connection.Connection, "finish_oneway", nothing))
    mutant(
        "a one-way send is answered", _SOURCE,
        (send_message_processor.SendMessageProcessor, "_encode_answers", _encode_answers_to_all),
    )  # fmt: skip
