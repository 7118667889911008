"""SEND_OK only when what the roles promise has come true; otherwise the status says what is missing."""

from collections.abc import Sequence

import pytest

from rmqha.broker.durability import Durability, FlushPromise, ReplicaPromise
from rmqha.replication.watermark import Watermark
from rmqha.store.status import PutMessageStatus

OK = PutMessageStatus.PUT_OK
DISK = PutMessageStatus.FLUSH_DISK_TIMEOUT
SLAVE = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
NONE = PutMessageStatus.SLAVE_NOT_AVAILABLE


class Broker:
    """A master as Durability sees it: a store that may have failed, two watermarks and a clock."""

    def __init__(self, *, sync_flush: bool, sync_master: bool, slave_ok: bool = True) -> None:
        self.write_error: Exception | None = None
        self.now = 0.0
        self.flushed, self.acked = Watermark(), Watermark()
        self.flush_requests = 0
        self.answers: list[list[PutMessageStatus]] = []
        self.durability = Durability(
            self,
            clock=lambda: self.now,
            flush=FlushPromise(self.flushed, self.request_flush, 5.0) if sync_flush else None,
            replica=ReplicaPromise(self.acked, lambda next_offset: slave_ok, 3.0) if sync_master else None,
        )

    def request_flush(self) -> None:
        self.flush_requests += 1

    def put(self, ends: Sequence[int]) -> None:
        self.durability.answer_when_durable(ends, self.answers.append)


def test_an_asynchronous_master_answers_at_once() -> None:
    broker = Broker(sync_flush=False, sync_master=False)
    broker.put([100, 200])
    assert broker.answers == [[OK, OK]]


def test_both_promises_must_hold() -> None:
    broker = Broker(sync_flush=True, sync_master=True)
    broker.put([100, 200])
    broker.acked.advance(200)
    assert broker.answers == []
    broker.flushed.advance(200)
    assert broker.answers == [[OK, OK]]
    assert broker.flush_requests == 1


def test_without_a_slave_the_answer_says_so_but_still_waits_for_the_disk() -> None:
    broker = Broker(sync_flush=True, sync_master=True, slave_ok=False)
    broker.put([100])
    assert broker.answers == []
    broker.flushed.advance(100)
    assert broker.answers == [[NONE]]


def test_at_the_deadline_each_message_gets_its_own_status() -> None:
    broker = Broker(sync_flush=False, sync_master=True)
    broker.put([100, 200, 300])
    broker.acked.advance(250)
    broker.acked.expire(3.0)
    assert broker.answers == [[OK, OK, SLAVE]]


def test_if_both_waits_fail_the_replica_status_is_reported() -> None:
    broker = Broker(sync_flush=True, sync_master=True)
    broker.put([100])
    broker.acked.expire(3.0)
    broker.flushed.expire(5.0)
    assert broker.answers == [[SLAVE]]


@pytest.mark.parametrize("sync_flush", [False, True])
def test_after_a_failed_flush_nothing_is_ever_send_ok(sync_flush: bool) -> None:
    broker = Broker(sync_flush=sync_flush, sync_master=True)
    broker.put([100, 200])
    broker.flushed.advance(100)
    broker.write_error = OSError("the device failed")
    broker.flushed.fail_all()
    broker.acked.advance(200)
    assert broker.answers == [[DISK, DISK]]
