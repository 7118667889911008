"""`rmqha doctor` of a broker that does not run: the end of its log, and what other replicas hold."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from rmqha.cli import doctor_peers
from rmqha.cli.doctor_store import check_log, check_member
from rmqha.cli.finding import Finding
from rmqha.cli.main import run
from rmqha.cli.pages import Page
from rmqha.codec.checkpoint import Checkpoint, encode_checkpoint
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.config import BrokerConfig, load_config
from tests.cli.fake_brokers import FakeBrokers, answer, runtime
from tests.cli.test_doctor import listening
from tests.stores import expected_log, expected_messages, unpack

Output = pytest.CaptureFixture[str]
PEER = "10.0.0.2:10911"
STATUS, VIEW = RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.VIEW_MESSAGE_BY_ID


def config(store: Path, **settings: str) -> BrokerConfig:
    """Of the broker whose store this is, with the sizes that its files have."""
    given = {"brokerName": "a", "storePathRootDir": str(store), "haPeers": "10.0.0.2:10912"}
    places = {"mappedFileSizeCommitLog": "commitlog/0*", "mappedFileSizeConsumeQueue": "consumequeue/*/*/0*"}
    sizes = {
        key: str(path.stat().st_size) for key, pattern in places.items() for path in sorted(store.glob(pattern))[-1:]
    }
    return load_config(None, given | sizes | settings)


def bad(findings: Iterable[Finding]) -> list[tuple[str, str, str]]:
    return [(finding.level, finding.what, finding.next) for finding in findings if finding.level != "ok"]


@pytest.mark.parametrize("name", ["basic", "rolled", "trimmed", "endblank", "bench"])
def test_a_good_log_has_its_end(name: str, tmp_path: Path) -> None:
    store = unpack(name, tmp_path)
    log, (finding,) = check_log(config(store))
    assert log is not None
    assert (log.end_offset, log.min_offset) == (expected_log(name)["maxOffset"], expected_log(name)["minOffset"])
    assert (finding.level, f"'rmqha log verify {store}'" in finding.what) == ("ok", True)


def test_damage_before_good_records_fails_and_behind_them_is_a_warning(tmp_path: Path) -> None:
    """Doctor found nothing, and the start ended with 'corrupt log'."""
    store = unpack("basic", tmp_path)
    (store / "abort").touch()  # else the queues know where it ended
    last = max((store / "commitlog").iterdir())
    for number, level in [(-1, "warn"), (-3, "fail")]:
        at = expected_messages("basic")[number]["physicalOffset"]
        with last.open("r+b") as file:
            file.seek(at - int(last.name) + 90)
            file.write(b"\xff\xff\xff\xff")
        _, findings = check_log(config(store))
        ((found, what, told),) = bad(findings)
        assert (found, f"physical offset {at}" in what) == (level, True)
        assert f"rmqha log verify {store}" in told


def test_a_format_that_is_not_read_here_is_no_damage_whatever_follows(tmp_path: Path) -> None:
    store = unpack("basic", tmp_path)
    at = expected_messages("basic")[-2]["physicalOffset"]
    segment = max(path for path in (store / "commitlog").iterdir() if int(path.name) <= at)
    with segment.open("r+b") as file:
        file.seek(at - int(segment.name) + 4)
        file.write(bytes.fromhex("daa320ab"))
    ((level, what, told),) = bad(check_log(config(store))[1])
    assert (level, what[: what.index(":")]) == ("fail", f"at physical offset {at}")
    assert "a record of RocketMQ 5.x, version 2" in what
    assert "docs/recovery.md" in told


def test_a_damaged_record_is_why_a_log_ends_early(tmp_path: Path) -> None:
    """It said first that a segment is missing, and to mount the right disk; then what was damaged."""
    store = unpack("basic", tmp_path)
    at = expected_messages("basic")[-2]["physicalOffset"]
    segment = max(path for path in (store / "commitlog").iterdir() if int(path.name) <= at)
    log, body = bytearray(segment.read_bytes()), at - int(segment.name) + 88
    log[body] ^= 0x20
    segment.write_bytes(log)
    ((level, what, told),) = bad(check_log(config(store))[1])
    assert (level, what[: what.index(":")]) == (
        "fail",
        f"corrupt at physical offset {at}, and a good record follows",
    )
    assert "rmqha log verify" in told


def test_a_segment_that_is_missing_fails(tmp_path: Path, fake_brokers: FakeBrokers) -> None:
    """It was called good, and a peer whose log ends in it ended doctor with a traceback."""
    store = unpack("rolled", tmp_path)
    first, second, *_ = sorted((store / "commitlog").iterdir())
    second.unlink()
    log, findings = check_log(config(store))
    ((level, what, told),) = bad(findings)
    assert (log, level, "is missing" in what) == (None, "fail", True)
    assert "rmqha log verify" in told
    assert compared(store, fake_brokers, first.stat().st_size + 7, answer(code=ResponseCode.SYSTEM_ERROR)) == []


@pytest.mark.parametrize("name", ["basic", "rolled"])
def test_a_log_that_ends_before_what_is_known_of_it_fails(name: str, tmp_path: Path) -> None:
    """Its last segment was removed: "ok, it ends at", and a start refused it."""
    store = unpack(name, tmp_path)
    segments = sorted((store / "commitlog").iterdir())
    last = expected_log(name)["maxOffset"]
    for path in segments:
        if int(path.name) + path.stat().st_size >= last:
            path.unlink()
    _, findings = check_log(config(store))
    ((level, what, told),) = bad(findings)
    assert len(findings) == 1, "its end is not called good beside that"
    assert (level, f"the consume queues know of records up to {last:,}" in what) == ("fail", True)
    assert "docs/recovery.md" in told


def test_a_log_without_a_record_whose_checkpoint_says_that_it_was_durable_fails(tmp_path: Path) -> None:
    """Another disk is mounted there: its segment was made, and nothing else was said."""
    segment = tmp_path / "commitlog" / f"{0:020}"
    segment.parent.mkdir()
    segment.write_bytes(bytes(4096))
    assert check_log(config(tmp_path)) == (None, [])
    (tmp_path / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(master_flushed_offset=1000)))
    log, findings = check_log(config(tmp_path))
    ((level, what, _),) = bad(findings)
    assert (log, level) == (None, "fail")
    assert "it ends at 0, but the checkpoint says that it was durable up to 1,000: a segment is missing, or was" in what


def test_no_log_is_not_looked_at(tmp_path: Path) -> None:
    assert check_log(config(tmp_path / "none")) == (None, [])


def compared(
    store: Path, brokers: FakeBrokers, end_offset: int, viewed: RemotingCommand, **settings: str
) -> list[tuple[str, str, str]]:
    status = runtime(broker_id=1, role="SLAVE", max_offset=end_offset, broker_name="a")
    if settings:
        status = runtime(max_offset=end_offset, broker_name="a")
    brokers.answers = {PEER: {STATUS: status, VIEW: viewed}}
    its = config(store, **settings)
    log, _ = check_log(its)
    return bad(doctor_peers.check_peers(its, log, is_empty=False, timeout_s=1))


def record(store: Path, message: dict[str, int]) -> bytes:
    last = max((store / "commitlog").iterdir())
    data, at = last.read_bytes(), message["physicalOffset"] - int(last.name)
    return data[at : at + int.from_bytes(data[at : at + 4], "big")]


def test_a_peer_is_compared_at_the_last_place_that_both_have(tmp_path: Path, fake_brokers: FakeBrokers) -> None:
    store = unpack("basic", tmp_path)
    end, last = expected_log("basic")["maxOffset"], expected_messages("basic")[-1]
    own = record(store, last)
    assert compared(store, fake_brokers, end, answer(body=own)) == []
    (asked,) = [fields["offset"] for _, _, fields in fake_brokers.asked if "offset" in fields]
    assert asked == str(last["physicalOffset"])

    ((level, what, told),) = compared(store, fake_brokers, end + 100, answer(body=own))
    assert (level, "holds 100 bytes more than the log here" in what) == ("warn", True)
    assert "haCatchUpAtStart=try" in told
    assert Page.DIVERGED not in told

    missing = answer(code=ResponseCode.SYSTEM_ERROR, remark="can not find message by offset 7")
    for other in (answer(body=own[:-1] + b"x"), missing):
        ((level, what, told),) = compared(store, fake_brokers, end, other)
        assert (level, "holds other bytes" in what, Page.DIVERGED in told) == ("fail", True, True)

    shorter = expected_messages("basic")[-1]["physicalOffset"]
    before = record(store, expected_messages("basic")[-2])
    assert compared(store, fake_brokers, shorter, answer(body=before)) == []
    ((level, what, told),) = compared(store, fake_brokers, shorter - 1, answer(body=before))
    assert (level, Page.DIVERGED in told) == ("fail", True)


def test_a_peer_whose_log_ends_within_a_blank_here_holds_other_bytes(tmp_path: Path, fake_brokers: FakeBrokers) -> None:
    """It has records where the log here has none: the one before the blank is the same, and proves nothing."""
    store = unpack("basic", tmp_path)
    blank = expected_log("basic")["blanks"][1]
    begins, ends = blank["physicalOffset"], blank["physicalOffset"] + blank["size"]
    before = max(one["physicalOffset"] for one in expected_messages("basic") if one["physicalOffset"] < begins)
    segment = store / "commitlog" / f"{65536:020}"
    own = segment.read_bytes()[before - 65536 : begins - 65536]
    for end, is_other in ((begins, False), (begins + 1, True), (begins + 100, True), (ends - 1, True), (ends, False)):
        found = compared(store, fake_brokers, end, answer(body=own))
        assert [level for level, what, _ in found if "holds other bytes" in what] == ["fail"] * is_other, end


def test_a_peer_that_may_not_be_asked_may_differ(tmp_path: Path, fake_brokers: FakeBrokers) -> None:
    store, end = unpack("basic", tmp_path), expected_log("basic")["maxOffset"]
    refusal = answer(code=ResponseCode.NO_PERMISSION, remark="not you")
    (_, unknown, _), (_, longer, told) = compared(store, fake_brokers, end + 9, refusal)
    assert ("is unknown" in unknown, "9 bytes more" in longer, Page.DIVERGED in told) == (True, True, True)


def test_a_slave_beyond_its_master_is_warned_of(tmp_path: Path, fake_brokers: FakeBrokers) -> None:
    store = unpack("basic", tmp_path)
    slave = {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": "10.0.0.2:10912"}
    last, before = expected_messages("basic")[-1], expected_messages("basic")[-2]
    found = compared(store, fake_brokers, last["physicalOffset"], answer(body=record(store, before)), **slave)
    assert ("warn", True) in [(level, Page.AHEAD in told and "goes on for" in what) for level, what, told in found]


def test_a_master_that_two_keys_name_is_compared_once(tmp_path: Path, fake_brokers: FakeBrokers) -> None:
    """By its HA port: one below its listenPort nobody answers."""
    store, end = unpack("basic", tmp_path), expected_log("basic")["maxOffset"]
    slave = {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": "10.0.0.2:10912", "masterAddress": PEER}
    own = record(store, expected_messages("basic")[-1])
    assert compared(store, fake_brokers, end, answer(body=own), **slave) == []


def test_a_broker_that_runs_and_does_not_answer_fails() -> None:
    """Its process was stopped by a signal, and doctor had a warning, and exit code 0."""
    with listening() as port:
        hung = load_config(None, {"listenPort": str(port)})
        ((level, what, told),) = bad(doctor_peers.check_own(hung, timeout_s=0.05))
    assert (level, "does not answer" in what, "is its process stopped" in told) == ("fail", True, True)


def test_the_command_says_it(tmp_path: Path, capsys: Output) -> None:
    store = unpack("basic", tmp_path)
    path = tmp_path / "broker.conf"
    path.write_text(f"storePathRootDir={store}\nlistenPort=0\nhaListenPort=0\n")
    run(["doctor", "-c", str(path), "--format", "json"])
    areas = [json.loads(line)["area"] for line in capsys.readouterr().out.splitlines()]
    assert "log" in areas


MEMBER = {"enableDLegerCommitLog": "true", "dLegerSelfId": "n1", "dLegerPeers": "n0-127.0.0.1:1;n1-127.0.0.1:2"}


def test_the_store_of_another_member_fails(tmp_path: Path, capsys: Output) -> None:
    """Two files had each other's dLegerSelfId, and all looked good until the group had begun anew."""
    (tmp_path / "dledger-n0").mkdir()
    (tmp_path / "dledger-n0" / "currterm").write_text("currTerm=3\nvoteLeader=n0\n")
    path = tmp_path / "broker.conf"
    keys = MEMBER | {"storePathRootDir": str(tmp_path), "brokerName": "raft"}
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    assert run(["doctor", "-c", str(path), "--format", "json"]) == 1
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (told,) = [one for one in found if one["level"] == "fail" and one["area"] == "store"]
    assert f"{tmp_path} is the store of member n0" in told["what"]
    assert f"rename {tmp_path}/dledger-n0 to dledger-n1" in told["next"]
    assert run(["config", "check", str(path)]) == 2
    captured = capsys.readouterr()
    assert f"{tmp_path} is the store of member n0" in captured.err
    assert "cannot be used, problems: 1" in captured.out
    (tmp_path / "dledger-n0").rename(tmp_path / "dledger-n1")
    assert run(["config", "check", str(path)]) == 0
    assert list(check_member(load_config(path))) == []


def test_of_a_classic_broker_no_member_s_store_is_looked_for(tmp_path: Path) -> None:
    (tmp_path / "dledger-n0").mkdir()
    (tmp_path / "dledger-n0" / "currterm").touch()
    assert list(check_member(config(tmp_path))) == []


def told_of_start(store: Path, **settings: str) -> str:
    """What doctor says of a store that a start refuses."""
    ((level, what, _),) = bad(check_log(config(store, **settings))[1])
    assert level == "fail"
    return what


def test_a_commitlog_that_is_gone_beside_its_queues_fails(tmp_path: Path) -> None:
    """As when its disk is not mounted, and the mount point is missing, too."""
    store = unpack("basic", tmp_path)
    (store / "commitlog").rename(tmp_path / "elsewhere")
    assert "there is no commitlog segment in" in told_of_start(store)
    (store / "commitlog").mkdir()
    assert "is the right disk mounted there?" in told_of_start(store)


@pytest.mark.parametrize("key", ["mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue"])
def test_files_of_another_size_than_is_configured_fail(key: str, tmp_path: Path) -> None:
    store = unpack("rolled", tmp_path)
    assert "bytes, but 4000000 are configured for each file" in told_of_start(store, **{key: "4000000"})


@pytest.mark.parametrize("name", ["00000000000000000000.bak", "0000"])
def test_a_file_that_is_no_segment_fails(name: str, tmp_path: Path) -> None:
    """What an operator's cp left."""
    store = unpack("basic", tmp_path)
    (store / "commitlog" / name).write_bytes(bytes((store / "commitlog" / ("0" * 20)).stat().st_size))
    assert f"{store}/commitlog/{name} is no segment: move it out" in told_of_start(store)


def test_the_old_commitlog_of_a_member_is_looked_at_too(tmp_path: Path) -> None:
    store = unpack("basic", tmp_path)
    assert check_log(config(store, **MEMBER)) == (None, [])
    (store / "commitlog" / "notes").touch()
    assert "is no segment" in told_of_start(store, **MEMBER)


def test_a_log_that_is_good_is_told_with_its_end(tmp_path: Path) -> None:
    store, end = unpack("basic", tmp_path), expected_log("basic")["maxOffset"]
    log, (finding,) = check_log(config(store))
    assert log is not None
    assert (finding.level, log.end_offset, finding.what.partition(";")[0]) == ("ok", end, f"it ends at {end:,}")
