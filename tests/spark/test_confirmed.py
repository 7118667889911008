"""What replicas hold, and no more, is read when a master is asked for it; and what is said when nobody knows."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is in the extra [spark]")

from rmqha.cli.main import run
from rmqha.codec.codes import STATUS_KEY, RequestCode, ResponseCode
from rmqha.codec.frame_decoder import FrameDecoder
from rmqha.codec.java_json import dumps
from rmqha.codec.remoting import FLAG_RESPONSE, RemotingCommand
from rmqha.errors import ConfigError, StoreError
from rmqha.spark.commit_log import open_log
from rmqha.spark.confirmed import Masters, NoReplicaError, confirmed_end, confirmed_end_or, split_addresses
from rmqha.spark.datasource import RmqhaReader
from rmqha.spark.replay import ReplayOptions, replay
from rmqha.spark.source_options import parse_options
from rmqha.spark.stream import LogStreamReader
from tests.spark.in_process import in_process
from tests.spark.logs import LedgerWriter, LogWriter

Start = Callable[..., str]
NEVER = 1 << 62


class FakeMaster:
    """Answers 28 and 33, one connection after the other, from a thread."""

    def __init__(self, log: LogWriter, **facts: Any) -> None:
        self._log = log
        self._facts = {"role": "ASYNC_MASTER", "dispatched_offset": NEVER, "ha": {"proven_offset": NEVER}} | facts
        self.listener = socket.create_server(("127.0.0.1", 0))
        Thread(target=self._serve, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.listener.getsockname()[1]}"

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                decoder = FrameDecoder()
                while data := connection.recv(65536):
                    for request in decoder.receive_data(data):
                        answer = self._answer(request)
                        answer.opaque = request.opaque
                        connection.sendall(answer.encode())

    def _answer(self, request: RemotingCommand) -> RemotingCommand:
        if request.code == RequestCode.GET_BROKER_RUNTIME_INFO:
            table = {} if "brokerVersionDesc" in self._facts else {STATUS_KEY: json.dumps(self._facts)}
            return RemotingCommand(0, 0, FLAG_RESPONSE, body=dumps({"table": table}).encode())
        offset = int(request.ext_fields["offset"])
        if offset not in self._log.offsets:
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, 0, FLAG_RESPONSE, remark="can not find message by offset")
        with self._log.path(offset).open("rb") as file:
            file.seek(offset % self._log.file_size)
            head = file.read(4)
            return RemotingCommand(0, 0, FLAG_RESPONSE, body=head + file.read(int.from_bytes(head) - 4))


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a master that says of itself what is given; its address."""
    masters: list[FakeMaster] = []

    def start_one(log: LogWriter, **facts: Any) -> str:
        masters.append(FakeMaster(log, **facts))
        return masters[-1].address

    yield start_one
    for master in masters:
        master.listener.close()


@pytest.fixture
def log(tmp_path: Path) -> LogWriter:
    writer = LogWriter(tmp_path / "store")
    for index in range(300):
        writer.append(b"m" * index)
    return writer


def end(log: LogWriter, *addresses: str) -> int:
    return confirmed_end(open_log(str(log.root)), Masters(addresses))


def test_reading_ends_before_the_record_of_which_replicas_lack_a_byte(log: LogWriter, start: Start) -> None:
    last = log.offsets[200]
    assert end(log, start(log, ha={"proven_offset": last})) == last
    assert end(log, start(log, ha={"proven_offset": last + 1})) == last
    assert end(log, start(log, ha={"proven_offset": last - 1})) == log.offsets[199]
    assert end(log, start(log)) == log.end
    assert end(log, start(log, dispatched_offset=last)) == last


def test_of_several_brokers_whichever_is_the_master_is_believed(log: LogWriter, start: Start) -> None:
    """After a failover it is another one; the one before may be away."""
    slave = start(log, role="SLAVE")
    with closing(socket.create_server(("127.0.0.1", 0))) as nobody:
        away = f"127.0.0.1:{nobody.getsockname()[1]}"
    master = start(log, ha={"proven_offset": log.offsets[10]})
    assert end(log, slave, away, master) == log.offsets[10]
    with pytest.raises(StoreError, match=f"{slave} is a slave; {away} does not answer: Connection refused. Name its"):
        end(log, slave, away)


def test_two_that_both_are_master_of_the_log_agree_on_what_both_confirm(log: LogWriter, start: Start) -> None:
    masters = [start(log, ha={"proven_offset": log.offsets[at]}) for at in (20, 10)]
    assert end(log, *masters) == log.offsets[10]


def test_the_master_of_another_log_is_not_believed(log: LogWriter, start: Start, tmp_path: Path) -> None:
    """Of another store; or of this one, after it went on in another way."""
    other = LogWriter(tmp_path / "other")
    for index in range(300):
        other.append(b"n" * index)
    with pytest.raises(StoreError, match=r"is the master of another log: its record at \d+ is not the one here"):
        end(log, start(other))
    other.offsets.clear()
    with pytest.raises(StoreError, match="can not find message by offset"):
        end(log, start(other))
    assert end(log, start(other), start(log)) == log.end


def test_the_master_of_a_younger_log_says_nothing_of_this_one(log: LogWriter, start: Start, tmp_path: Path) -> None:
    """Of several logs the masters of all are named: one that is new, or began later, holds up none of the others."""
    other = LogWriter(tmp_path / "other")
    other.append(b"n")
    empty = start(other, dispatched_offset=0, ha={"proven_offset": 0})
    with pytest.raises(
        NoReplicaError, match=r"no master that answers shows anything of .*: it is another log's, or has"
    ):
        end(log, empty)
    with pytest.raises(NoReplicaError, match=r"lost its own; 127\.0\.0\.1:[0-9]+ is a slave"):
        end(log, empty, start(log, role="SLAVE"))
    assert confirmed_end_or(open_log(str(log.root)), Masters((empty,)), 7) == 7
    assert end(log, empty, start(log)) == log.end
    log.path(0).unlink()
    young = start(other, dispatched_offset=other.end, ha={"proven_offset": other.end})
    assert end(log, young, empty, start(log)) == log.end
    with pytest.raises(StoreError, match=f"is the master of another log, which ends at {other.end}, before"):
        end(log, young)
    assert end(log, start(log, ha={"proven_offset": 5})) == log.file_size


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"starting": {"what": "recovery"}}, "is still starting"),
        ({"ha": {}}, "does not know what slaves took"),
        ({"brokerVersionDesc": "V4_9_8"}, "does not know what slaves took: a broker of RocketMQ"),
        ({"ha": [1]}, "answers with what is no status"),
    ],
)
def test_a_broker_that_cannot_tell(log: LogWriter, start: Start, facts: dict[str, Any], told: str) -> None:
    with pytest.raises(StoreError, match=told):
        end(log, start(log, **facts))


def test_without_any_replica_a_batch_fails_and_a_stream_waits(log: LogWriter, start: Start) -> None:
    master = Masters((start(log, ha={"proven_offset": 0}),))
    opened = open_log(str(log.root))
    with pytest.raises(NoReplicaError, match="knows of no slave that has taken anything since it started"):
        confirmed_end(opened, master)
    assert confirmed_end_or(opened, master, 4711) == 4711
    with pytest.raises(StoreError, match="is a slave"):
        confirmed_end_or(opened, Masters((start(log, role="SLAVE"),)), 4711)


@pytest.mark.parametrize(
    ("starting", "first"), [(None, 0), ("earliest", 0), ("{at}", 4), ("latest", None), ("@1", None)]
)
def test_a_new_stream_waits_as_well(log: LogWriter, start: Start, starting: str | None, first: int | None) -> None:
    """It ended wherever it was begun before a slave came; only ``latest``, and times, are not known then."""
    master = start(log, ha={"proven_offset": 0})
    options = {"path": str(log.root), "until": "confirmed", "addresses": master}
    if starting == "@1":
        options["startingTimestamp"] = "1"
    elif starting is not None:
        options["startingOffsets"] = starting.format(at=log.offsets[4])
    reader = LogStreamReader(parse_options(options), ("physicalOffset",))
    if first is None:
        with pytest.raises(NoReplicaError, match="knows of no slave"):
            reader.initialOffset()
        return
    assert reader.initialOffset()["broker"]["offset"] == log.offsets[first]


@pytest.mark.parametrize("is_now", [False, True])
def test_a_stream_s_batch_ends_where_replicas_do(is_now: bool, log: LogWriter, start: Start) -> None:
    pytest.importorskip("pyspark.sql.streaming.datasource", reason="Spark 4.1 has no limits")
    from rmqha.spark.limited_stream import RmqhaStreamReader  # noqa: PLC0415 - as above

    master = start(log, ha={"proven_offset": log.offsets[200]})
    options = {"path": str(log.root), "until": "confirmed", "addresses": master}
    stream = RmqhaStreamReader(parse_options(options), ("physicalOffset",))
    if is_now:
        stream.prepareForTriggerAvailableNow()
    end = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    assert end["broker"]["offset"] == log.offsets[200]


@pytest.mark.parametrize("starting", ["startingTimestamp", "startingOffsets"])
def test_a_new_stream_begins_nowhere_that_a_failover_may_cut(tmp_path: Path, start: Start, starting: str) -> None:
    """Its first offset would be none any more, and the stream fail; an offset that somebody names is kept to."""
    log = LogWriter(tmp_path / "store")
    for index in range(300):
        log.append(b"m", stored_ms=1000 + index)
    master = start(log, ha={"proven_offset": log.offsets[100]})
    value = str(1250 if starting == "startingTimestamp" else log.offsets[250])
    options = {"path": str(log.root), "until": "confirmed", "addresses": master, starting: value}
    reader = LogStreamReader(parse_options(options), ("physicalOffset",))
    expected = log.offsets[100 if starting == "startingTimestamp" else 250]
    assert reader.initialOffset()["broker"]["offset"] == expected
    source = parse_options(options)
    begin, end = source.range_of("broker", open_log(str(log.root)))
    assert end <= begin == log.offsets[250]
    (part,) = RmqhaReader(source, ("physicalOffset",), cores=1).partitions()
    assert part.task.splits == (), "a batch reads nothing that is older"


def test_nothing_that_was_read_before_is_taken_back(log: LogWriter, start: Start) -> None:
    master = Masters((start(log, ha={"proven_offset": log.offsets[5]}),))
    assert confirmed_end_or(open_log(str(log.root)), master, log.offsets[9]) == log.offsets[9]


def test_what_a_group_has_committed_nobody_need_confirm(tmp_path: Path) -> None:
    ledger = LedgerWriter(tmp_path)
    for _ in range(10):
        ledger.put(b"x")
    ledger.commit(6)
    assert confirmed_end(open_log(str(tmp_path)), Masters(())) == ledger.offsets[7]


def test_options_of_the_source(log: LogWriter, start: Start) -> None:
    master = start(log, ha={"proven_offset": log.offsets[100]})
    source = parse_options({"path": str(log.root), "until": "confirmed", "addresses": master})
    opened = open_log(str(log.root))
    assert source.range_of("broker", opened) == (0, log.offsets[100])
    latest = parse_options(
        {"path": str(log.root), "until": "confirmed", "addresses": master, "startingOffsets": "latest"}
    )
    assert latest.range_of("broker", opened) == (log.offsets[100], log.offsets[100])
    for options, told in (
        ({"addresses": master}, "addresses is for until=confirmed"),
        ({"until": "confirmed", "addresses": "nowhere"}, "'nowhere' is not host:port"),
        ({"until": "tomorrow"}, "must be written or confirmed"),
        ({"until": "confirmed", "tlsKey": "k"}, "tlsKey is the key of tlsCert"),
    ):
        with pytest.raises(ConfigError, match=told):
            parse_options({"path": str(log.root)} | options)
    asks_nobody = parse_options({"path": str(log.root), "until": "confirmed"})
    with pytest.raises(ConfigError, match="Give the address of its master"):
        asks_nobody.range_of("broker", opened)


def test_addresses() -> None:
    assert split_addresses(["a:1;b:2", "[::1]:3, a:1"]) == ("a:1", "b:2", "[::1]:3")
    for bad in ([], [";"], ["a"], ["a:0"], ["a:65536"], [":1"]):
        with pytest.raises(ValueError, match="host:port"):
            split_addresses(bad)


def test_runs_of_the_replay_go_on_as_replicas_do(
    log: LogWriter, start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:

    def replayed(at: int) -> int:
        masters = Masters((start(log, ha={"proven_offset": at}),))
        options = ReplayOptions(str(log.root), str(tmp_path / "out"), masters=masters)
        report = replay(options, start=in_process)
        assert (report.unfinished == "what follows is not known to be held by replicas") == (report.end < log.end)
        return report.messages

    assert replayed(log.offsets[120] + 5) == 120
    assert replayed(log.offsets[120]) == 0
    assert replayed(log.offsets[60]) == 0
    assert replayed(NEVER) == 180
    assert run(["replay", str(log.root), "--out", str(tmp_path / "out"), "--confirmed-by", "127.0.0.1:1"]) == 1
    assert "127.0.0.1:1 does not answer" in capsys.readouterr().err
