"""`rmqha promote`: what speaks against it, and what becomes of the file."""

import json
import shutil
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqha.cli.conf_edit import edited
from rmqha.cli.log_difference import compare_logs
from rmqha.cli.main import run
from rmqha.cli.pages import Page
from rmqha.cli.promote import _tell_changes
from rmqha.cli.promotion import OldStore, Replica, obstacles, stakes
from rmqha.cli.promotion_asked import ask_replicas, look_at_old_store
from rmqha.codec.checkpoint import decode_checkpoint, encode_checkpoint
from rmqha.codec.codes import RequestCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.config import load_config
from rmqha.store.log_reader import LogReader
from rmqha.store.log_verify import verify_log
from rmqha.store.os_disk import OsDisk
from tests.cli.facts import master, slave
from tests.cli.fake_brokers import FakeBrokers, answer, runtime
from tests.stores import expected_log, expected_messages, unpack

Output = pytest.CaptureFixture[str]
RUNTIME = RequestCode.GET_BROKER_RUNTIME_INFO
MASTER, OWN, OTHER, NS = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911", "10.0.0.9:9876"
UNKNOWN = "it should not be made master: where queues end is unknown: no answer"
CONF = """\
# my slave
brokerName=a
brokerId = 1
brokerRole=SLAVE
haMasterAddress=\\
  10.0.0.1:10912
masterAddress=10.0.0.1:10911
brokerIP1=10.0.0.2
allowInsecure=true
fileReservedTime=48
"""


def whats(own: dict[str, Any], *others: Replica, tail: int = 0) -> list[str]:
    return [one.what for one in obstacles(own, others, OldStore("/old", 500, tail) if tail else None)]


def test_nothing_speaks_against_the_longest_slave_of_a_master_that_is_gone() -> None:
    shorter = Replica(OTHER, slave("waiting", max_offset=50))
    assert whats(slave("waiting"), Replica(MASTER, None), shorter) == []


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (Replica(MASTER, master()), "the old master may be alive: 10.0.0.1:10911 says that it is SYNC_MASTER"),
        (
            Replica(MASTER, {"version": "RocketMQ V4_9_8"}),
            "the old master may be alive: 10.0.0.1:10911 says that it is a broker",
        ),
        (Replica(MASTER, None, listens=True), "the old master may be alive: 10.0.0.1:10911 is listened on"),
        (Replica(OTHER, None, listens=True, is_peer=True), "what 10.0.0.3:10911 holds is not known: it is listened on"),
        (Replica(OTHER, master(), is_peer=True), "the old master may be alive: 10.0.0.3:10911 says that it is"),
        (Replica(OTHER, slave("waiting", max_offset=101)), "10.0.0.3:10911 holds 1 bytes more"),
        (Replica(OTHER, {"role": "SLAVE", "starting": {"for_s": 1}}), "10.0.0.3:10911 is starting"),
    ],
)
def test_another_broker_speaks_against_it(other: Replica, said: str) -> None:
    (what,) = whats(slave("waiting"), other)
    assert what.startswith(said)


@pytest.mark.parametrize(("begin", "size"), [(10, 20), (0, 30)])
def test_one_whose_log_begins_earlier_is_to_be_promoted(begin: int, size: int) -> None:
    """The other one had deleted unexpired segments: groups passed over what they had not had."""
    (found,) = obstacles(slave("waiting", min_offset=30), [Replica(OTHER, slave("waiting", min_offset=begin))])
    assert found.what == f"10.0.0.3:10911 holds {size} bytes before this log begins"
    assert found.accepted_by == "--accept-later-begin"
    assert whats(slave("waiting", min_offset=10), Replica(OTHER, slave("waiting", min_offset=30))) == []


@pytest.mark.parametrize(
    ("tables", "older"),
    [
        ({"log_end": 60, "is_in_step": False}, 40),
        ({"log_end": 60, "is_in_step": True}, 0),
        ({"log_end": 100, "is_in_step": False}, 0),
        ({"log_end": -1, "is_in_step": False}, 0),
        (None, 0),
    ],
)
def test_a_slave_whose_tables_are_of_before_its_log_s_end_is_promoted_by_option_alone(
    tables: dict[str, Any] | None, older: int
) -> None:
    """It could not have its master's tables for half a minute, and the master died.

    A topic that an operator had closed was open again, and a group that was set back passed over messages; on the
    other slave, which had known, too.
    """
    found = obstacles(slave("waiting", max_offset=100, tables=tables), ())
    assert [one.accepted_by for one in found] == ["--accept-lost-tables"] * (older > 0)
    assert all(f"those of {older} bytes before its log's end" in one.what for one in found)


def test_a_slave_that_lacks_what_its_master_has_is_promoted_by_option_alone() -> None:
    """Its master had been stopped, as the page for another master says, and could not be asked any more."""
    (found,) = obstacles(slave("waiting", begins_later={"bytes": 16_777_216, "expires_in_s": 7300.0}), ())
    assert found.what.startswith("its log begins 16,777,216 bytes later than its master's")
    assert ("(2 h left)" in found.what, found.accepted_by) == (True, "--accept-later-begin")


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (master(), "the broker that runs is SYNC_MASTER"),
        (slave("waiting", starting={"for_s": 1}), "it is starting"),
        (slave("waiting", write_refusal="disk full"), "it cannot write: disk full"),
        (slave("diverged"), "it is diverged"),
        (slave("waiting", not_learned=["topics were not taken over: x", UNKNOWN]), UNKNOWN),
    ],
)
def test_the_slave_itself_may_not_be_fit(own: dict[str, Any], said: str) -> None:
    (what,) = whats(own)
    assert what.startswith(said)


@pytest.mark.parametrize(
    ("state", "page"),
    [("diverged", Page.DIVERGED), ("misconfigured", Page.MIXED_UP), ("comparing", Page.SLAVE_WAITS)],
)
def test_a_state_that_forbids_it_names_its_page(state: str, page: Page) -> None:
    (found,) = obstacles(slave(state), ())
    assert (found.what, found.next.endswith(str(page))) == (f"it is {state}", True)


def test_a_slave_that_follows_its_master_is_not_promoted_but_one_that_follows_a_slave_is() -> None:
    (what,) = whats(slave("transfer"), Replica(MASTER, None))
    assert what == "it follows 10.0.0.1:10912: the connection is open"
    assert whats(slave("transfer"), Replica(MASTER, slave("waiting"))) == []


def test_the_page_names_all_that_a_slave_without_its_masters_tables_is_refused_for() -> None:
    """It named one option of the two, and the refusal then wanted the other."""
    never = {
        "tables_not_taken": "this slave has not had all",
        "not_learned": ["topics were not taken over: x", UNKNOWN],
    }
    wanted = {one.accepted_by for one in obstacles(slave("waiting", **never), ())}
    assert wanted == {"--accept-lost-tables", "--accept-unknown-queue-ends"}
    page = Path(__file__, "../../../docs/operations.md").resolve().read_text()
    (told,) = [line for line in page.splitlines() if line.startswith("- make the peer master")]
    assert all(option in told for option in wanted)


def test_a_lost_tail_unknown_queue_ends_and_damage_can_be_accepted() -> None:
    """The old master, made its slave, may have had the only good copy of a damaged record."""
    own = slave(
        "waiting", not_learned=[UNKNOWN], damaged_records="a record is damaged", dropped="its start cut the log"
    )
    found = obstacles(own, [], OldStore("/old", 500, 3))
    accepted = [one.accepted_by for one in found]
    assert sorted(accepted) == ["--accept-damage"] * 2 + ["--accept-lost-tail", "--accept-unknown-queue-ends"]


@pytest.mark.parametrize(
    ("not_learned", "accepted"),
    [
        (["topics, groups and consumers' offsets were not taken over: x"], ["--accept-lost-tables"]),
        (["topics, groups and consumers' offsets are not the newest: x"], []),
        ([], []),
    ],
)
def test_a_slave_without_tables_is_promoted_where_it_has_taken_its_master_s_since(
    not_learned: list[str], accepted: list[str]
) -> None:
    """Commits, prohibitions and deletions of the whole group were lost, and "nothing is in the way"."""
    own = slave("waiting", not_learned=not_learned, lost_tables="topics.json was no table")
    assert [one.accepted_by for one in obstacles(own, [])] == accepted


def test_a_slave_that_never_had_tables_is_told_from_one_that_has_those_of_before_its_restart() -> None:
    """The one loses all offsets and prohibitions, the other ten seconds of them: both said the same."""
    not_learned = ["topics, groups and consumers' offsets were not taken over: no answer", UNKNOWN]
    never, before = (
        slave("waiting", not_learned=not_learned, tables_not_taken=told) for told in ("it never had them", None)
    )
    accepted = [[one.accepted_by for one in obstacles(own, [])] for own in (never, before)]
    assert accepted == [["--accept-lost-tables", "--accept-unknown-queue-ends"], ["--accept-unknown-queue-ends"]]
    assert obstacles(never, [])[0].next.endswith(Page.LOST_TABLES)
    lines = ["\n".join(stakes(own, [])) for own in (never, before)]
    assert ["those that it had before its last start" in one for one in lines] == [False, True]


def test_what_is_at_stake_is_told() -> None:
    lines = stakes(slave("waiting", max_offset=1000, flushed_offset=900), [Replica(MASTER, None)])
    assert lines == [
        "this slave: log ends at 1,000, flushed 900",
        "100 bytes of it are not flushed: gone, should this machine lose power now",
        "10.0.0.1:10911: nobody answers; what only it holds is lost, or diverges when it comes back",
    ]
    listens, tells_no_end = Replica(MASTER, None, listens=True), Replica(OTHER, {"role": "SLAVE"})
    assert stakes(slave("waiting", max_offset=1000, flushed_offset=900), [listens, tells_no_end]) == lines[:2]
    flushed = slave("waiting", max_offset=1000, flushed_offset=1000)
    assert stakes(flushed, []) == ["this slave: log ends at 1,000, flushed 1,000"]


def remove_log(store: Path) -> None:
    for path in (store / "commitlog").iterdir():
        path.unlink()


def empty_segments(store: Path) -> None:
    for path in (store / "commitlog").iterdir():
        path.write_bytes(bytes(path.stat().st_size))


def truncate_segments(store: Path) -> None:
    for path in (store / "commitlog").iterdir():
        path.write_bytes(b"")


def damage_first(store: Path) -> None:
    with (store / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(90)
        file.write(b"\xff\xff\xff\xff")


def remove_all(store: Path) -> None:
    remove_log(store)
    shutil.rmtree(store / "consumequeue")
    (store / "checkpoint").unlink(missing_ok=True)


@pytest.mark.parametrize("harm", [remove_log, empty_segments, truncate_segments, damage_first, remove_all])
def test_an_old_store_that_does_not_show_what_it_holds_is_in_the_way(
    harm: Callable[[Path], None], tmp_path: Path
) -> None:
    """A disk that is not mounted, most likely: "nothing is in the way"."""
    store = unpack("basic", tmp_path)
    sound = look_at_old_store(store, "/none", 0)
    end = expected_log("basic")["maxOffset"]
    assert sound == OldStore(str(store), end, len(expected_messages("basic")))
    assert stakes(slave("waiting"), [], sound)[-1].startswith(f"{store}: log ends at {end:,}; {sound.tail_messages} of")
    assert look_at_old_store(store, "/none", end).tail_messages == 0
    harm(store)
    found = obstacles(slave("waiting"), [], look_at_old_store(store, "/none", 0))
    assert [one.accepted_by for one in found] == ["--accept-lost-tail"]
    assert "what the old master's store holds is not known" in found[0].what


def test_the_blank_at_the_end_of_an_old_store_is_part_of_it(tmp_path: Path) -> None:
    """Its checkpoint said so, and the store was taken for one that does not show what it holds."""
    store = unpack("rolled", tmp_path)
    first, *others = sorted((store / "commitlog").iterdir())
    for path in others:
        path.unlink()
    shutil.rmtree(store / "consumequeue")
    known = verify_log(OsDisk(), str(store / "commitlog")).end_offset
    assert known == first.stat().st_size
    checkpoint = decode_checkpoint((store / "checkpoint").read_bytes())
    (store / "checkpoint").write_bytes(encode_checkpoint(replace(checkpoint, master_flushed_offset=known)))
    found = look_at_old_store(store, "/none", 0)
    assert (found.end_offset, found.damage) == (known, "")


@pytest.mark.parametrize("name", ["basic", "rolled", "endblank", "trimmed"])
def test_an_old_store_that_holds_other_bytes_is_in_the_way(name: str, tmp_path: Path) -> None:
    """Their ends were compared, and "nothing is in the way": what it had acknowledged in those places was lost."""
    old, own = unpack(name, tmp_path / "old"), unpack(name, tmp_path / "own")
    log, end = str(own / "commitlog"), expected_log(name)["maxOffset"]
    *_, before, last = expected_messages(name)
    same = look_at_old_store(old, log, end)
    assert (same.overlap.compared_bytes > 0, same.overlap.differs_at, obstacles(slave("waiting"), [], same)) == (
        True,
        None,
        [],
    )
    assert "bytes that both have are the same" in stakes(slave("waiting"), [], same)[-1]
    in_body = last["physicalOffset"] + last["storeSize"] - 1
    segment = max(path for path in (own / "commitlog").iterdir() if int(path.name) <= in_body)
    with segment.open("r+b") as file:
        file.seek(in_body - int(segment.name))
        file.write(b"\xff")
    differs = look_at_old_store(old, log, end)
    assert differs.overlap.differs_at == in_body
    (found,) = obstacles(slave("waiting"), [], differs)
    assert (found.accepted_by, f"differ, at offset {in_body:,}" in found.what) == ("--accept-lost-tail", True)
    assert found.next.endswith(Page.DIVERGED)
    shorter = look_at_old_store(old, log, last["physicalOffset"])
    assert (shorter.overlap.differs_at, shorter.tail_messages) == (None, 1), "what differs is behind the slave's end"
    assert look_at_old_store(old, log, before["physicalOffset"] + 1).overlap.compared_bytes > 0


def test_what_lies_behind_a_blank_s_header_may_differ(tmp_path: Path) -> None:
    old, own = unpack("rolled", tmp_path / "old"), unpack("rolled", tmp_path / "own")
    segment = sorted((own / "commitlog").iterdir())[4]
    size = segment.stat().st_size
    end = int(segment.name) + size
    with segment.open("r+b") as file:
        file.seek(size - 1)
        file.write(b"\xff")
    overlap = look_at_old_store(old, str(own / "commitlog"), end).overlap
    assert (0 < overlap.compared_bytes < size, overlap.differs_at) == (True, None)


def test_a_blank_s_header_is_compared(tmp_path: Path) -> None:
    """Where the other log has a record, or another blank, they have parted."""
    old, own = unpack("rolled", tmp_path / "old"), unpack("rolled", tmp_path / "own")
    segment = sorted((own / "commitlog").iterdir())[4]
    end = int(segment.name) + segment.stat().st_size
    with LogReader(OsDisk(), str(old / "commitlog")) as reader:
        *_, last = [one.physical_offset + one.store_size for one in reader.messages(0) if one.physical_offset < end]
    with segment.open("r+b") as file:
        file.seek(last - int(segment.name))
        file.write(b"\xff")
    with LogReader(OsDisk(), str(own / "commitlog")) as reader, LogReader(OsDisk(), str(old / "commitlog")) as other:
        assert compare_logs(other, reader, end).differs_at == last


def test_a_slave_s_log_that_cannot_be_read_here_is_in_the_way(tmp_path: Path) -> None:
    store, end = unpack("basic", tmp_path), expected_log("basic")["maxOffset"]
    (found,) = obstacles(slave("waiting"), [], look_at_old_store(store, f"{tmp_path}/none", end))
    assert (found.accepted_by, f"there is no log in {tmp_path}/none" in found.what) == ("--accept-lost-tail", True)


@pytest.mark.parametrize("named", ["store", "commitlog", "linked", "linked log", "relative", "roundabout"])
def test_the_slave_s_own_store_is_no_old_master_s(named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compared with itself it would be the same to its end, and the old master's, on no disk here, as good as read."""
    store, end = unpack("basic", tmp_path), expected_log("basic")["maxOffset"]
    monkeypatch.chdir(store.parent)
    (tmp_path / "link").symlink_to(store)
    (tmp_path / "log").symlink_to(store / "commitlog")
    ways = {
        "store": store,
        "commitlog": store / "commitlog",
        "linked": tmp_path / "link",
        "linked log": tmp_path / "log",
        "relative": Path(store.name),
        "roundabout": store / "config" / "..",
    }
    for offset in (0, end):
        (found,) = obstacles(slave("waiting"), [], look_at_old_store(ways[named], str(store / "commitlog"), offset))
        assert (found.accepted_by, "own store" in found.what) == ("", True)


@pytest.mark.parametrize("text", [CONF, CONF.replace("\n", "\r\n"), CONF.rstrip("\n")])
def test_an_edited_file_says_the_new_values_and_keeps_every_line(text: str, tmp_path: Path) -> None:
    changes = {"brokerRole": "ASYNC_MASTER", "brokerId": "0", "haMasterAddress": None, "masterAddress": None}
    path = tmp_path / "broker.conf"
    path.write_bytes(edited(text.encode(), changes, note="promoted"))
    config = load_config(path)
    assert (config.broker_role, config.broker_id, config.ha_master_address) == ("ASYNC_MASTER", 0, "")
    assert (config.file_reserved_time_s, config.notes) == (48 * 3600, ())
    lines = path.read_text().splitlines()
    assert [line.removeprefix("#") for line in lines][:10] == [line.removeprefix("#") for line in text.splitlines()]
    assert "#  10.0.0.1:10912" in lines


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text(CONF)
    path.chmod(0o640)
    return path


@pytest.fixture
def replicas(fake_brokers: FakeBrokers, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Which brokers answer, and with which status."""
    monkeypatch.setattr("rmqha.cli.promotion_asked._listens", lambda *_: False)

    def set_up(**by_name: dict[str, Any]) -> None:
        addresses = {"own": OWN, "old": MASTER, "other": OTHER}
        fake_brokers.answers = {
            addresses[name]: {RUNTIME: runtime(**facts)} for name, facts in by_name.items()
        }  # fmt: skip

    return set_up


@pytest.mark.parametrize("port", ["own", "ha"])
def test_what_hangs_is_listened_on_though_its_ha_port_alone_is_open(
    port: str, conf: Path, fake_brokers: FakeBrokers
) -> None:
    """It went for gone, and two masters would have taken sends once it went on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        listening = server.getsockname()[1]
        address = f"127.0.0.1:{listening - (port == 'ha')}"
        (found,) = ask_replicas([address], load_config(conf), slave("waiting"), timeout_s=1.0)
    assert (found.facts, found.listens) == (None, True)


def test_a_plan_changes_nothing_and_what_is_done_keeps_a_copy(
    conf: Path, replicas: Callable[..., None], capsys: Output
) -> None:
    replicas(own=slave("waiting"))
    command = ["promote", "-c", str(conf), "--role", "ASYNC_MASTER"]
    assert run(command) == 0
    assert "nothing was changed" in capsys.readouterr().out
    assert (conf.read_text(), len(list(conf.parent.iterdir()))) == (CONF, 1)
    assert run([*command, "--execute"]) == 0
    out = capsys.readouterr().out
    (copy,) = [path for path in conf.parent.iterdir() if path != conf]
    assert (copy.read_text(), f"the former file is {copy}" in out) == (CONF, True)
    assert conf.stat().st_mode & 0o777 == 0o640
    assert load_config(conf).broker_id == 0
    assert run(command) == 1
    assert "is a master's already" in capsys.readouterr().err


def test_other_slaves_are_to_follow_the_address_for_replication(
    conf: Path, replicas: Callable[..., None], capsys: Output
) -> None:
    """On a network of its own nobody listens for them at the one for clients."""
    conf.write_text(f"{CONF}brokerIP2=10.1.0.2\n")
    replicas(own=slave("waiting"))
    assert run(["promote", "-c", str(conf), "--role", "ASYNC_MASTER", "--execute"]) == 0
    assert "haMasterAddress=10.1.0.2:10912, masterAddress=10.0.0.2:10911" in capsys.readouterr().out


def test_a_master_that_will_wait_for_the_old_one_is_told_before(
    conf: Path, replicas: Callable[..., None], capsys: Output
) -> None:
    """It waited for the one that had been lost, without end, and no send was taken."""
    conf.write_text(f"{CONF}haCatchUpAtStart=require\nhaPeers=10.0.0.1:10912\n")
    replicas(own=slave("waiting"))
    assert run(["promote", "-c", str(conf), "--role", "ASYNC_MASTER"]) == 0
    assert "it takes no sends before peers of haPeers (10.0.0.1:10912) have shown" in capsys.readouterr().out


def test_it_is_refused_while_the_old_master_or_a_longer_replica_answers(
    conf: Path, replicas: Callable[..., None], capsys: Output
) -> None:
    command = ["promote", "-c", str(conf), "--role", "ASYNC_MASTER", "--execute"]
    replicas(own=slave("waiting"), old=master())
    assert run(command) == 1
    assert "the old master may be alive" in capsys.readouterr().err
    replicas(own=slave("waiting"), other=slave("waiting", broker_id=2, max_offset=500))
    assert run([*command, "--peer", OTHER]) == 1
    assert "10.0.0.3:10911 holds 400 bytes more" in capsys.readouterr().err
    assert run([*command, "--peer", OTHER, "--format", "json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["executed"], [one["what"] for one in told["obstacles"]]) == (False, [f"{OTHER} holds 400 bytes more"])
    replicas(own=slave("waiting"), other=slave("waiting", broker_id=2, max_offset="many"))
    assert run([*command, "--peer", OTHER]) == 1
    assert f"what {OTHER} holds is not known: it is listened on, and does not answer" in capsys.readouterr().err
    replicas()
    assert run(command) == 3
    replicas(own=slave("waiting", broker_id=7))
    assert run(command) == 1
    assert "runs another broker" in capsys.readouterr().err
    assert (conf.read_text(), len(list(conf.parent.iterdir()))) == (CONF, 1)


@pytest.mark.parametrize(
    ("role", "broker_id", "end", "said"),
    [
        ("SLAVE", 2, 100, ""),
        ("SLAVE", 2, 500, f"{OTHER} holds 400 bytes more"),
        ("ASYNC_MASTER", 0, 100, "the old master may be alive"),
        (None, 0, 100, "the old master may be alive"),
    ],
)
def test_a_slave_of_rocketmqs_is_compared_like_another(
    role: str | None,
    broker_id: int,
    end: int,
    said: str,
    conf: Path,
    replicas: Callable[..., None],
    fake_brokers: FakeBrokers,
    capsys: Output,
) -> None:
    """It went for the old master: "stop it for good first"."""
    replicas(own=slave("waiting"))
    table = {"brokerVersionDesc": "V4_9_7", "commitLogMinOffset": "0", "commitLogMaxOffset": str(end)}
    runtime_answer = RemotingCommand(0, body=json.dumps({"table": table}).encode())
    keys = f"brokerRole={role}\nbrokerId={broker_id}\n".encode()
    fake_brokers.answers[OTHER] = {RUNTIME: runtime_answer}
    if role is not None:
        fake_brokers.answers[OTHER][RequestCode.GET_BROKER_CONFIG] = RemotingCommand(0, body=keys)
    code = run(["promote", "-c", str(conf), "--role", "ASYNC_MASTER", "--peer", OTHER])
    told = capsys.readouterr()
    assert (code, said in told.err) == (1 if said else 0, True)
    assert said or f"{OTHER}: log ends at 100" in told.out


def test_what_was_accepted_is_not_in_the_way(conf: Path, replicas: Callable[..., None], capsys: Output) -> None:
    replicas(own=slave("waiting", damaged_records="a record is damaged"))
    command = ["promote", "-c", str(conf), "--role", "ASYNC_MASTER", "--format", "json"]
    for more, code in (["--execute"], 1), (["--accept-damage"], 0):
        assert run([*command, *more]) == code
        told = json.loads(capsys.readouterr().out)
        assert (told["executed"], len(told["obstacles"])) == (False, code)


def test_a_file_that_names_another_store_than_the_slave_has_is_refused(
    conf: Path, replicas: Callable[..., None], capsys: Output
) -> None:
    """A stale copy was changed, and the slave started again by it was a master with an empty log."""
    command = ["promote", "-c", str(conf), "--role", "ASYNC_MASTER", "--execute"]
    conf.write_text(f"{CONF}storePathRootDir={conf.parent}/elsewhere\n")
    link = conf.parent / "link"
    link.symlink_to(conf.parent)
    for running, code in (("slave", 1), ("elsewhere", 0)):
        root = f"{conf.parent}/{running}"
        replicas(own=slave("waiting", store={"storePathRootDir": root, "storePathCommitLog": f"{root}/commitlog"}))
        assert run(command) == code
        if code:
            error = capsys.readouterr().err
            assert f"its storePathRootDir is {root}, the file's is {conf.parent}/elsewhere" in error
            conf.write_text(f"{CONF}storePathRootDir={link}/elsewhere\n")


def test_a_file_that_cannot_be_changed_says_so(
    conf: Path, replicas: Callable[..., None], capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("rmqha.cli.conf_edit.replace_conf", read_only)
    replicas(own=slave("waiting"))
    assert run(["promote", "-c", str(conf), "--role", "ASYNC_MASTER", "--execute"]) == 1
    error = capsys.readouterr().err
    assert f"{conf} is as it was" in error
    assert "may this user write in its directory" in error


def test_what_no_broker_could_start_with_takes_nobodys_place(
    conf: Path, replicas: Callable[..., None], capsys: Output
) -> None:
    conf.write_text(CONF + "inSyncReplicas=1\n")
    replicas(own=slave("waiting"))
    assert run(["promote", "-c", str(conf), "--role", "SYNC_MASTER", "--execute"]) == 2
    assert "SYNC_MASTER with inSyncReplicas=1" in capsys.readouterr().err
    assert [path.name for path in conf.parent.iterdir()] == ["broker.conf"]


def test_replicas_that_a_name_server_knows_are_compared_and_a_silent_one_is_said(
    conf: Path, fake_brokers: FakeBrokers, replicas: Callable[..., None], capsys: Output
) -> None:
    conf.write_text(f"{CONF}namesrvAddr={NS};10.0.0.8:9876\n")
    replicas(own=slave("waiting"), other=slave("waiting", broker_id=2, max_offset=500))
    known = {"a": {"brokerName": "a", "cluster": "c", "brokerAddrs": {"0": MASTER, "1": OWN, "2": OTHER}}}
    fake_brokers.answers[NS] = {RequestCode.GET_BROKER_CLUSTER_INFO: answer({"brokerAddrTable": known})}
    assert run(["promote", "-c", str(conf), "--role", "ASYNC_MASTER"]) == 1
    captured = capsys.readouterr()
    assert "10.0.0.3:10911 holds 400 bytes more" in captured.err
    assert "10.0.0.8:9876: this name server does not answer" in captured.out


@pytest.mark.parametrize("followed", [None, {"master": ""}, {"master": "10.0.0.4:10912"}])
def test_of_those_that_are_asked_the_masters_are_no_peers(
    followed: dict[str, str] | None, fake_brokers: FakeBrokers
) -> None:
    """Those that the file names, and the one that it follows: one that is starting follows none yet."""
    fourth = "10.0.0.4:10911"
    fake_brokers.answers = {at: {RUNTIME: runtime(broker_name="a")} for at in (MASTER, OWN, OTHER, fourth)}
    config = load_config(None, {
        "brokerName": "a", "brokerRole": "SLAVE", "brokerId": "1", "masterAddress": OWN,
        "haMasterAddress": MASTER.replace("10911", "10912"),
    })  # fmt: skip
    found = ask_replicas([MASTER, OWN, OTHER, fourth], config, {"ha_client": followed}, timeout_s=1)
    is_followed = bool(followed and followed["master"])
    assert [one.is_peer for one in found] == [False, False, True, not is_followed]
    assert [one.is_peer for one in ask_replicas([OTHER], config, {"starting": {}}, timeout_s=1)] == [True]


def test_a_key_that_is_taken_away_is_told_if_the_file_has_it(tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(CONF.replace("masterAddress=10.0.0.1:10911\n", ""))
    changes = {"brokerId": "0", "haMasterAddress": None, "masterAddress": None}
    _tell_changes(path, changes, load_config(path), [], copy=None)
    assert capsys.readouterr().out.splitlines() == [
        "",
        f"{path}:",
        "  brokerId=0",
        "  haMasterAddress is taken away",
        "",
        "Nothing is in the way, and nothing was changed: give --execute to do it.",
    ]
