"""StoreStatsService: how many messages are put and got, in all and by the second.

Everything is counted a batch at a time: what is put here by the log, when it is appended; what a slave has from its
master when it is dispatched, as in RocketMQ; gets with each pull.

Source: spec: remoting §2.7 (28); rocketmq-all-4.9.8 StoreStatsService.java.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import trio

from rmqha.replication.role import Role
from rmqha.store.discarded_halves import DiscardedHalves
from rmqha.store.put_times import PutTimes
from rmqha.store.status import PutMessageStatus
from rmqha.store.unsafe_puts import UnsafePuts

_SAMPLE_S: Final = 1.0
_SAMPLES: Final = 600
_SPANS: Final = (10, 60, 600)
"""Samples: the rates of ten seconds, a minute and ten minutes are told."""
_SAMPLES_A_MINUTE: Final = 60
_AT, _PUT, _FOUND, _MISSED, _TRANSFERRED, _WIDTH = range(6)
"""The numbers of a sample: when, and the totals of then."""


class PutTotals(Protocol):
    """What a :class:`~rmqha.store.log.Log` counts."""

    @property
    def put_message_times_total(self) -> int:
        """Messages."""
        ...

    @property
    def put_message_size_total(self) -> int:
        """Bytes."""
        ...


class StoreStatsService:
    """Totals since the start, and samples of them.

    Attributes:
        put_message_failed_times: puts that were refused, or not stored.
        put_message_unsafe: puts that are in the log and were not answered with PUT_OK, by their status.
        unsafe_puts: since when there are such.
        sends_refused: requests of producers that were refused before anything was put.
        undeliverable_messages: delayed messages that could not be put where they belong, and never can.
        discarded_halves: half messages that nobody ended.
        undecided_half_messages: older than transactionTimeOut, and not ended, as the last round of checks found.
        damaged_halves: places of half messages that were met and are damaged.
        damaged_marks: places of the marks of transactions that were met and could not be read.
        get_message_times_total_found: pulls that found messages.
        get_message_times_total_miss: pulls that found none.
        get_message_transfered_msg_count: messages that pulls found.
        get_message_entire_time_max_ms: longest time that looking for a pull's messages took.
        put_times: of the puts, from their append to their answer.
    """

    def __init__(self, log: PutTotals, role: Role, *, clock: Callable[[], float]) -> None:
        self._log: Final = log
        self._role: Final = role
        self._clock: Final = clock
        self._copied_messages = self._copied_bytes = 0
        self.put_message_failed_times = 0
        self.put_message_unsafe: Final = Counter[PutMessageStatus]()
        self.unsafe_puts: Final = UnsafePuts()
        self.sends_refused = 0
        self.undeliverable_messages = 0
        self.discarded_halves: Final = DiscardedHalves()
        self.undecided_half_messages = 0
        self.damaged_halves: Final = set[int]()
        self.damaged_marks: Final = set[int]()
        self.get_message_times_total_found = 0
        self.get_message_times_total_miss = 0
        self.get_message_transfered_msg_count = 0
        self.get_message_entire_time_max_ms = 0
        self.put_times: Final = PutTimes()
        self._samples: Final = array("d")
        """One behind the other."""

    @property
    def put_message_times_total(self) -> int:
        """Messages that were put, here or at a slave's master, each of a batch counted."""
        return self._log.put_message_times_total + self._copied_messages

    @property
    def put_message_size_total(self) -> int:
        """Bytes of their records."""
        return self._log.put_message_size_total + self._copied_bytes

    def note_dispatched(self, _topic: str, messages: int, size_bytes: int) -> None:
        """A round of dispatch has found so many messages of a topic: on a slave, what its master has put."""
        if not self._role.is_master:
            self._copied_messages += messages
            self._copied_bytes += size_bytes

    def note_unsafe(self, statuses: Iterable[PutMessageStatus]) -> None:
        """Puts that are in the log were answered so, some of them with PUT_OK."""
        unsafe = [status for status in statuses if status is not PutMessageStatus.PUT_OK]
        self.put_message_unsafe.update(unsafe)
        self.unsafe_puts.note(unsafe, now=self._clock())

    def note_get(self, messages: int, elapsed_s: float) -> None:
        """A pull has found so many messages, or none."""
        if messages:
            self.get_message_times_total_found += 1
            self.get_message_transfered_msg_count += messages
        else:
            self.get_message_times_total_miss += 1
        elapsed_ms = int(elapsed_s * 1000)
        self.get_message_entire_time_max_ms = max(self.get_message_entire_time_max_ms, elapsed_ms)

    async def run(self) -> None:
        """Take a sample every second, until cancelled."""
        samples = 0
        while True:
            self.sample()
            await trio.sleep(_SAMPLE_S)
            samples += 1
            if samples % _SAMPLES_A_MINUTE == 0:
                self.put_times.end_minute()

    def sample(self) -> None:
        """Remember the totals of this moment."""
        found, missed = self.get_message_times_total_found, self.get_message_times_total_miss
        transferred = self.get_message_transfered_msg_count
        self._samples.extend((self._clock(), self.put_message_times_total, found, missed, transferred))
        self.put_times.sample()
        if len(self._samples) > (_SAMPLES + 1) * _WIDTH:
            del self._samples[:_WIDTH]

    def runtime_info(self) -> dict[str, str]:
        """RocketMQ's keys of this part, with its names; rates are those of 10 s, a minute and ten minutes."""
        puts = self.put_message_times_total
        return {
            "putMessageEntireTimeMax": str(self.put_times.longest_ms),
            "putMessageTimesTotal": str(puts),
            "putMessageFailedTimes": str(self.put_message_failed_times),
            "putMessageSizeTotal": str(self.put_message_size_total),
            "putMessageDistributeTime": self.put_times.distribution(),
            "putMessageAverageSize": str(self.put_message_size_total / max(puts, 1)),
            "dispatchMaxBuffer": "0",
            "getMessageEntireTimeMax": str(self.get_message_entire_time_max_ms),
            "putTps": self._rates(_PUT),
            "getFoundTps": self._rates(_FOUND),
            "getMissTps": self._rates(_MISSED),
            "getTotalTps": self._rates(_FOUND, _MISSED),
            "getTransferedTps": self._rates(_TRANSFERRED),
            "getTransferredTps": self._rates(_TRANSFERRED),
            "putLatency99": f"{self.put_times.latency_ms(0.99):.2f}",
            "putLatency999": f"{self.put_times.latency_ms(0.999):.2f}",
        }

    def _rates(self, *totals: int) -> str:
        """Three numbers. Of a span longer than all there is, the rate since the start: RocketMQ leaves those out."""
        return " ".join(str(sum(self._rate(total, span) for total in totals)) for span in _SPANS)

    def _rate(self, total: int, span: int) -> float:
        samples = self._samples
        first, last = max(0, len(samples) - (span + 1) * _WIDTH), len(samples) - _WIDTH
        if last <= first:
            return 0.0
        took_s = samples[last + _AT] - samples[first + _AT]
        return (samples[last + total] - samples[first + total]) / took_s if took_s else 0.0
