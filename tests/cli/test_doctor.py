"""`rmqha doctor`: each check finds what it is there for, and nothing else."""

import errno
import json
import os
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqha.cli import doctor_host, doctor_peers
from rmqha.cli.doctor import _findings
from rmqha.cli.errors import UnreachableError
from rmqha.cli.finding import Finding
from rmqha.cli.main import run
from rmqha.cli.verdict import Verdict
from rmqha.codec.codes import RequestCode
from rmqha.config import BrokerConfig, load_config
from rmqha.store.disk import DiskUsage
from rmqha.store.os_disk import OsDisk
from tests.cli.facts import connection, master
from tests.cli.fake_brokers import FakeBrokers, answer, runtime

Output = pytest.CaptureFixture[str]
RUNTIME, CLUSTER = RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_BROKER_CLUSTER_INFO


def config(directory: Path | None = None, **settings: str) -> BrokerConfig:
    root = {"storePathRootDir": str(directory)} if directory is not None else {}
    return load_config(None, {"brokerName": "a", "listenPort": "0", "haListenPort": "0"} | root | settings)


def levels(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    return [(finding.level, finding.what) for finding in findings if finding.level != "ok"]


@contextmanager
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_few_files_and_maps_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqha.process.raise_files_limit", lambda: 1024)
    monkeypatch.setattr("resource.getrlimit", lambda _: (1024, 1024))
    monkeypatch.setattr(doctor_host, "max_map_count", lambda: 1000)
    (files, about_files), (maps, about_maps) = levels(doctor_host.check_limits(config()))
    assert (files, maps) == ("warn", "warn")
    assert about_files.startswith("1,024 open files and connections, by the limit of this process")
    ((level, what), _) = levels(doctor_host.check_limits(config(), pid=7, files_max=2048))
    assert (level, "2,048 open files and connections, by the limit of the broker that runs, process 7" in what) == (
        "warn",
        True,
    )
    assert [one for one, _ in levels(doctor_host.check_limits(config(), pid=7, files_max=524_288))] == ["warn"], "maps"
    assert about_maps == "1,000 maps"
    monkeypatch.setattr("rmqha.process.raise_files_limit", lambda: None)
    monkeypatch.setattr(doctor_host, "max_map_count", lambda: 1_000_000)
    assert levels(doctor_host.check_limits(config())) == []


def test_a_clock_behind_the_log_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_host, "_is_synchronized", lambda: True)
    segment = tmp_path / f"{0:020}"
    segment.touch()
    assert levels(doctor_host.check_clock(str(tmp_path))) == []
    os.utime(segment, (0, time.time() + 3600))
    ((level, what),) = levels(doctor_host.check_clock(str(tmp_path)))
    assert (level, "s behind the last write" in what) == ("fail", True)
    for beside in (3 << 30, 1 << 30):
        (tmp_path / f"{beside:020}").touch()
        ((level, what),) = levels(doctor_host.check_clock(str(tmp_path)))
        assert (level, "s behind the last write" in what) == ("fail", True), "one of several segments is ahead"
    monkeypatch.setattr(doctor_host, "_is_synchronized", lambda: False)
    ((level, what),) = levels(doctor_host.check_clock(str(tmp_path / "nowhere")))
    assert (level, "not synchronized" in what) == ("warn", True)


@pytest.mark.parametrize(
    ("usage", "level", "said"),
    [
        (DiskUsage(1 << 40, 1 << 39, 50, read_only=False), None, ""),
        (DiskUsage(1 << 40, 1 << 39, 75, read_only=False), None, ""),  # the limit itself is not above it
        (DiskUsage(1 << 40, 1 << 39, 76, read_only=False), "warn", "diskMaxUsedSpaceRatio=75"),
        (DiskUsage(1 << 40, 1 << 39, 85, read_only=False), "warn", "diskMaxUsedSpaceRatio=75"),
        (DiskUsage(1 << 40, 1 << 39, 86, read_only=False), "fail", "diskSpaceCleanForciblyRatio=85 unexpired files"),
        (DiskUsage(1 << 40, 1 << 39, 91, read_only=False), "fail", "diskSpaceCleanForciblyRatio=85 unexpired files"),
        (DiskUsage(1 << 40, 1 << 39, 91, read_only=False), "fail", "diskSpaceWarningLevelRatio=90 refuses sends"),
        (DiskUsage(1 << 32, 1 << 31, 50, read_only=False), "fail", "less than 3 segments"),
        (DiskUsage(1 << 40, 1 << 39, 50, read_only=True), "fail", "is read-only"),
    ],
)
def test_the_disk(
    usage: DiskUsage, level: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OsDisk, "usage", lambda _disk, _path: usage)
    found = levels(doctor_host.check_disk(config(tmp_path / "not" / "yet")))
    assert {one for one, _ in found} == (set() if level is None else {level})
    assert sum(said in what for _, what in found) == (level is not None)


@pytest.mark.parametrize(
    ("free", "level", "said"), [(None, None, ""), (1_000, None, ""), (999, "warn", "999 free"), (0, "fail", "none is")]
)
def test_inodes(
    free: int | None, level: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None was left beside free bytes: all was ok, and no segment could be made."""
    usage = DiskUsage(1 << 40, 1 << 39, 50, read_only=False, free_inodes=free)
    monkeypatch.setattr(OsDisk, "usage", lambda _disk, _path: usage)
    found = levels(doctor_host.check_disk(config(tmp_path)))
    assert [(one, said in what) for one, what in found] == ([] if level is None else [(level, True)])


def test_a_full_disk_that_counts_its_inodes_from_its_free_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ZFS and XFS do: an operator was sent to look for small files."""
    usage = DiskUsage(1 << 40, 0, 100, read_only=False, free_inodes=0)
    monkeypatch.setattr(OsDisk, "usage", lambda _disk, _path: usage)
    found = [*doctor_host.check_disk(config(tmp_path))]
    assert {one.area for one in found} == {"disk"}
    assert "fail" in {one.level for one in found}


def test_the_disk_of_all_but_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the broker refuses sends for was not looked at where storePathRootDir has a file system of its own."""
    apart = config(Path("/proc"), storePathCommitLog=str(tmp_path))
    for usage, said in [
        (DiskUsage(1 << 40, 1 << 39, 91, read_only=False), "diskSpaceWarningLevelRatio=90 refuses sends"),
        (DiskUsage(1 << 40, 1 << 39, 50, read_only=True), "/proc is read-only"),
        (DiskUsage(1 << 40, 1 << 39, 50, read_only=False, free_inodes=0), "/proc: none is free"),
    ]:
        good = DiskUsage(1 << 40, 1 << 39, 50, read_only=False, free_inodes=5_000)
        monkeypatch.setattr(OsDisk, "usage", lambda _, path, at=usage, log=good: at if path == "/proc" else log)
        ((level, what),) = levels(doctor_host.check_disk(apart))
        assert (level, said in what) == ("fail", True)
    filling = DiskUsage(1 << 40, 1 << 39, 90, read_only=False)  # at the limit, and far above diskMaxUsedSpaceRatio
    monkeypatch.setattr(OsDisk, "usage", lambda _, path: filling if path == "/proc" else good)
    assert levels(doctor_host.check_disk(apart)) == []


def test_ports_that_are_free_are_no_more_than_named() -> None:
    with listening() as port:
        pass
    free = config(listenPort=str(port), haListenPort="0")
    for is_running, said in ((False, ""), (True, ": taken by the broker, which runs")):
        whats = [one.what for one in doctor_host.check_ports(free, is_running=is_running)]
        assert whats == [
            f"{key} 127.0.0.1:{one}{said}" for key, one in (("listenPort", port), ("listenPort - 2", port - 2))
        ]
    assert [*doctor_host.check_ports(config(), is_running=False)] == []


@pytest.mark.parametrize("installed", ["1.2", ""])
def test_an_extra_that_is_not_there_is_told_and_one_that_is_not(
    installed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_host, "_version", lambda _: installed)
    without = [one.what for one in doctor_host.check_software(config()) if one.what.startswith("without")]
    assert len(without) == (0 if installed else len(doctor_host._EXTRAS))


def test_a_store_that_is_good_is_there_or_in_use_or_can_be_made(tmp_path: Path) -> None:
    there, new = config(tmp_path), config(tmp_path / "new")
    (tmp_path / "commitlog").mkdir()
    found = [doctor_host.check_store(one, is_running=is_running) for one, is_running in ((there, False), (there, True))]
    assert [[one.what.rpartition(": ")[2] for one in findings] for findings in found] == [
        ["there"] * 2,
        ["in use by its broker, which runs"] * 2,
    ]
    assert {one.what.rpartition(": ")[2] for one in doctor_host.check_store(new, is_running=False)} == {"can be made"}


def test_a_store_of_somebody_else_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert levels(doctor_host.check_store(config(tmp_path / "new"), is_running=False)) == []
    (tmp_path / "file").touch()
    ((level, what), *_) = levels(doctor_host.check_store(config(tmp_path / "file"), is_running=False))
    assert (level, what) == ("fail", f"{tmp_path}/file is no directory")
    segment = tmp_path / "commitlog" / f"{0:020}"
    segment.parent.mkdir()
    segment.touch()
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) != segment)
    assert levels(doctor_host.check_store(config(tmp_path), is_running=False)) == [
        ("fail", f"{segment} cannot be read and written")
    ]
    monkeypatch.setattr(os, "access", lambda path, _mode: Path(path) != tmp_path)
    ((level, what), *_) = levels(doctor_host.check_store(config(tmp_path), is_running=False))
    assert (level, what) == ("fail", f"{tmp_path} cannot be read and written")


@pytest.mark.parametrize(
    ("refused", "levels_told"), [(errno.EROFS, ["fail"] * 2), (errno.EIO, ["fail"] * 2), (errno.EOPNOTSUPP, [])]
)
def test_a_file_system_that_made_itself_read_only_fails(
    refused: int, levels_told: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its flags said "rw" after an error of the disk: doctor found nothing, and the start could not lock the store."""

    def open_refusing(*_: object) -> int:
        raise OSError(refused, os.strerror(refused))

    assert levels(doctor_host.check_store(config(tmp_path), is_running=False)) == []
    monkeypatch.setattr(os, "open", open_refusing)
    monkeypatch.setattr(doctor_host, "_why_locked", lambda *_: "")
    told = levels(doctor_host.check_store(config(tmp_path), is_running=False))
    assert [level for level, _ in told] == levels_told
    assert all(f"no file can be made in {tmp_path}: {os.strerror(refused)}" in what for _, what in told)


@pytest.mark.parametrize(("is_owner", "said"), [(True, "chmod -R u+rwX {path}: its owner"), (False, "chown -R it")])
def test_a_store_that_its_owner_may_not_write_needs_another_mode(
    is_owner: bool, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told to chown what it owned already."""
    root, other = tmp_path / "m", tmp_path / "m" / "config"
    other.mkdir(parents=True)
    owner = root.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner if is_owner else owner + 1)
    for forbidden in (root, other):
        monkeypatch.setattr(os, "access", lambda path, _mode, bad=forbidden: Path(path) != bad)
        finding, *_ = doctor_host.check_store(config(root), is_running=False)
        assert finding.what == f"{forbidden} cannot be read and written"
        assert finding.next.startswith(said.format(path=forbidden))


def test_no_mode_helps_where_nobody_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that is mounted read-only refuses its owner, too: a chmod was proposed that could not work."""
    usage = DiskUsage(used_percent=10, available=1 << 40, read_only=True, total=1 << 41)
    monkeypatch.setattr(os, "access", lambda _path, mode: not mode & os.W_OK)
    monkeypatch.setattr(OsDisk, "usage", lambda _self, _path: usage)
    finding, *_ = doctor_host.check_store(config(tmp_path), is_running=False)
    assert finding.next == "mount it for writing: as it is mounted nobody writes there"


def test_a_commitlog_that_another_store_s_broker_uses_fails(tmp_path: Path) -> None:
    """As the start says; only the lock in storePathRootDir was looked at."""
    log = tmp_path / "other" / "commitlog"
    log.mkdir(parents=True)
    its = config(tmp_path / "mine", storePathCommitLog=str(log))
    assert levels(doctor_host.check_store(its, is_running=False)) == []
    lock = OsDisk().lock_directory(str(log))
    try:
        (found,) = levels(doctor_host.check_store(its, is_running=False))
        assert levels(doctor_host.check_store(its, is_running=True)) == []
    finally:
        lock.close()
    assert found == ("fail", f"{log} is in use by the broker of another store: name a directory of its own")


def stored_at(root: Path) -> dict[str, object]:
    return {"store": {"storePathRootDir": str(root), "storePathCommitLog": f"{root}/commitlog"}}


def test_a_broker_that_runs_with_another_store_than_the_file_names_fails(
    tmp_path: Path, fake_brokers: FakeBrokers
) -> None:
    """A half-edited file was good as long as both brokers ran, and then began on the other one's store."""
    its = config(tmp_path / "s1", listenPort="10911")
    fake_brokers.answers["127.0.0.1:10911"] = {RUNTIME: runtime(**stored_at(tmp_path / "m"))}
    (finding,) = doctor_peers.check_own(its, timeout_s=1.0)
    assert (finding.level, finding.area) == ("fail", "store")
    assert f"its storePathRootDir is {tmp_path}/m, the file's is {tmp_path}/s1" in finding.what
    tenant = doctor_peers.find_tenant(its, timeout_s=1.0)
    assert tenant is not None
    assert "127.0.0.1:10911 (SYNC_MASTER a, brokerId 0), has another store than this file names" in tenant.what
    assert "correct the file" in tenant.next


def test_a_broker_that_runs_while_its_store_is_gone_is_told_as_that(tmp_path: Path, fake_brokers: FakeBrokers) -> None:
    """Its own ports were to be freed, or another brokerId set: a start then made an empty broker beside it."""
    its = config(tmp_path / "moved", listenPort="10911")
    told = runtime(**stored_at(tmp_path / "moved"), write_error="find failed: it was removed", refusal="not writable")
    fake_brokers.answers["127.0.0.1:10911"] = {RUNTIME: told}
    tenant = doctor_peers.find_tenant(its, timeout_s=1.0)
    assert tenant is not None
    assert (tenant.level, tenant.area) == ("fail", "store")
    assert f"{tmp_path}/moved/lock is not locked: the directory was removed, moved" in tenant.what
    assert "start nothing else here" in tenant.next
    found = _findings(its, timeout_s=1.0)
    assert not [one for one in found if one.area in {"ports", "brokerId"}]


def test_who_may_not_look_into_a_store_does_not_find_it_gone(
    tmp_path: Path, fake_brokers: FakeBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another user than the broker's: it ended with the first file that could not be looked at."""
    closed = tmp_path / "closed"
    its = config(closed / "store", listenPort="10911")
    (closed / "store" / "commitlog").mkdir(parents=True)
    (closed / "store" / "lock").touch()
    fake_brokers.answers["127.0.0.1:10911"] = {RUNTIME: runtime(**stored_at(closed / "store"))}
    gone = [one for one in _findings(its, timeout_s=1.0) if "is not locked" in one.what]
    assert gone, "who may look finds that"
    close_to_us(closed, monkeypatch)
    found = _findings(its, timeout_s=1.0)
    assert [one.level for one in found if "cannot be read and written" in one.what] == ["fail", "fail"]
    assert not [one for one in found if "is not locked" in one.what]


def close_to_us(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for another user, whatever the one of the tests may do: nothing below it can be looked at."""

    def is_within(path: object) -> bool:
        return isinstance(path, str | Path) and Path(path).is_relative_to(directory)

    def stat(path: Any, **how: Any) -> os.stat_result:
        if is_within(path) and Path(path) != directory:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return may_look(path, **how)

    may_look, may_use = os.stat, os.access
    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(os, "access", lambda path, mode: not is_within(path) and may_use(path, mode))


def test_nobody_or_one_that_does_not_tell_is_no_tenant(tmp_path: Path, fake_brokers: FakeBrokers) -> None:
    assert doctor_peers.find_tenant(config(tmp_path), timeout_s=1.0) is None
    its = config(tmp_path, listenPort="10911")
    assert doctor_peers.find_tenant(its, timeout_s=1.0) is None
    for told in (runtime(), answer(code=1)):
        fake_brokers.answers["127.0.0.1:10911"] = {RUNTIME: told}
        assert doctor_peers.find_tenant(its, timeout_s=1.0) is None


def test_the_port_of_a_broker_with_another_store_is_no_port_to_free(
    tmp_path: Path, fake_brokers: FakeBrokers, capsys: Output
) -> None:
    """Four times 'stop what listens there' stopped the master, whose file named an empty store then."""
    with listening() as port:
        fake_brokers.answers[f"127.0.0.1:{port}"] = {RUNTIME: runtime(**stored_at(tmp_path / "m"))}
        path = tmp_path / "broker.conf"
        path.write_text(f"storePathRootDir={tmp_path}/fresh\nlistenPort={port}\nhaListenPort=0\n")
        assert run(["doctor", "-c", str(path)]) == 1
    told = capsys.readouterr().out
    assert ("has another store than this file names" in told, "stop what listens" in told) == (True, False)


def test_certificates_that_no_start_can_use_fail(tmp_path: Path) -> None:
    key, cert = tmp_path / "a.key", tmp_path / "a.pem"
    cert.touch()
    named = {"CertPath": cert, "KeyPath": key, "TrustCertPath": cert}
    tls = {f"haTls{name}": str(path) for name, path in named.items()}
    assert levels(doctor_host.check_certificates(config(None, haTlsMode="disabled", **tls))) == []
    found = levels(doctor_host.check_certificates(config(None, haTlsMode="enforcing", **tls)))
    assert found == [("fail", f"TLS: {key} cannot be used: No such file or directory")]


def test_ports_that_are_taken_fail_unless_the_broker_runs() -> None:
    with listening() as port:
        taken = config(listenPort=str(port), haListenPort="0")
        found = levels(doctor_host.check_ports(taken, is_running=False))
        assert found[0] == ("fail", f"listenPort 127.0.0.1:{port}: is taken")
        assert levels(doctor_host.check_ports(taken, is_running=True)) == []
        watched = config(listenPort="0", haListenPort="0", metricsListen=str(port))
        assert levels(doctor_host.check_ports(watched, is_running=False)) == [
            ("fail", f"metricsListen 127.0.0.1:{port}: is taken")
        ]
    elsewhere = config(listenPort="0", haListenPort="29999", brokerIP2="192.0.2.1", allowInsecure="true")
    assert ("fail", "haListenPort 192.0.2.1:29999: is no address of this machine") in levels(
        doctor_host.check_ports(elsewhere, is_running=False)
    )


def test_what_a_pair_needs_to_know_of_each_other() -> None:
    ((level, what),) = levels(doctor_peers.check_relations(config()))
    assert (level, what) == ("warn", "not set: no replica is asked what this master may have lost")
    assert levels(doctor_peers.check_relations(config(haPeers="10.0.0.2:10912"))) == []
    slave = config(brokerRole="SLAVE", brokerId="1", haMasterAddress="10.0.0.1:10912")
    assert levels(doctor_peers.check_relations(slave)) == []


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"broker_id": 1, "role": "SLAVE"}, ""),
        ({"broker_id": 1, "role": "SLAVE", "broker_name": "b"}, "its brokerName is b, not a"),
        ({"broker_id": 0}, "it has brokerId 0 as well"),
        ({"broker_id": 1, "mapped_file_size_commit_log": 1048576}, "its mappedFileSizeCommitLog is 1048576, not"),
    ],
)
def test_peers_are_compared(facts: dict[str, object], said: str, fake_brokers: FakeBrokers) -> None:
    fake_brokers.answers = {"10.0.0.2:10911": {RUNTIME: runtime(**facts)}}
    found = levels(doctor_peers.check_peers(config(haPeers="10.0.0.2:10912"), is_empty=False, timeout_s=1))
    assert [level for level, _ in found] == (["fail"] if said else [])
    assert all(said in what for _, what in found)


def test_a_peer_of_another_cluster_is_a_warning(fake_brokers: FakeBrokers) -> None:
    """Nobody told, and with a failover the cluster's name changed."""
    its = config(haPeers="10.0.0.2:10912", brokerClusterName="C")
    for cluster, found in (("C", []), ("D", ["warn"])):
        status = runtime(broker_name="a", broker_id=1, role="SLAVE", broker_cluster_name=cluster)
        fake_brokers.answers["10.0.0.2:10911"] = {RUNTIME: status}
        told = levels(doctor_peers.check_peers(its, is_empty=False, timeout_s=1.0))
        assert [level for level, _ in told] == found
        assert all("its brokerClusterName is D, not C" in what for _, what in told)


def test_peers_that_do_not_answer_are_a_warning(fake_brokers: FakeBrokers) -> None:
    slave = config(brokerRole="SLAVE", brokerId="1", haMasterAddress="10.0.0.1:10912", masterAddress="10.0.0.1:10911")
    found = levels(doctor_peers.check_peers(slave, is_empty=False, timeout_s=1))
    assert [level for level, _ in found] == ["warn", "warn"]
    fake_brokers.answers = {"10.0.0.1:10911": {RUNTIME: runtime(role="SLAVE", broker_id=2)}}
    found = levels(doctor_peers.check_peers(slave, is_empty=False, timeout_s=1))
    assert found == [("fail", "10.0.0.1:10911: it is a slave")]
    fake_brokers.answers = {"10.0.0.1:10911": {RUNTIME: answer({"table": {"rmqhaStatus": "{"}})}}
    found = levels(doctor_peers.check_peers(slave, is_empty=False, timeout_s=1))
    assert [level for level, _ in found] == ["warn", "warn"]


@pytest.mark.parametrize(
    "status",
    [
        "[]",
        "3",
        "[" * 100_000,
        '{"version":"1","broker_name":"a"}',
        '{"version":"1","broker_name":"a","broker_id":1}',
        '{"broker_id":1}',
    ],
)
def test_a_peer_that_tells_no_status_is_a_warning(status: str, fake_brokers: FakeBrokers) -> None:
    """Doctor ended with a traceback, and nothing else that it had found was told."""
    fake_brokers.answers = {"10.0.0.2:10911": {RUNTIME: answer({"table": {"rmqhaStatus": status}})}}
    ((level, what),) = levels(doctor_peers.check_peers(config(haPeers="10.0.0.2:10912"), is_empty=False, timeout_s=1))
    assert (level, "its status cannot be read" in what) == ("warn", True)


def test_a_peer_that_answers_no_json_is_a_warning(fake_brokers: FakeBrokers) -> None:
    fake_brokers.answers = {"10.0.0.2:10911": {RUNTIME: answer(body=b'{"table":')}}
    ((level, what),) = levels(doctor_peers.check_peers(config(haPeers="10.0.0.2:10912"), is_empty=False, timeout_s=1))
    assert (level, "does not tell its status" in what) == ("warn", True)


@pytest.mark.parametrize(
    ("addresses", "cluster", "said"),
    [
        ({}, "DefaultCluster", ""),
        ({"0": "127.0.0.1:10911", "1": "10.0.0.2:10911"}, "DefaultCluster", ""),
        (
            {"0": "10.0.0.7:10911"},
            "DefaultCluster",
            "knows a with brokerId 0 at 10.0.0.7:10911, not at 127.0.0.1:10911",
        ),
        ({"1": "10.0.0.7:10911"}, "other", "knows a in cluster other, not DefaultCluster"),
    ],
)
def test_another_broker_in_this_ones_place_is_found_at_the_name_server(
    addresses: dict[str, str], cluster: str, said: str, fake_brokers: FakeBrokers
) -> None:
    known = {"a": {"brokerName": "a", "cluster": cluster, "brokerAddrs": addresses}} if addresses else {}
    fake_brokers.answers = {"10.0.0.9:9876": {CLUSTER: answer({"brokerAddrTable": known})}}
    found = levels(
        doctor_peers.check_name_servers(config(listenPort="10911", namesrvAddr="10.0.0.9:9876"), timeout_s=1)
    )
    assert [level for level, _ in found] == (["fail"] if said else [])
    assert all(said in what for _, what in found)


def test_of_a_dledger_member_the_place_of_its_groups_master_is_looked_at(fake_brokers: FakeBrokers) -> None:
    group = {"dLegerGroup": "g", "dLegerPeers": "n0-127.0.0.1:40911", "dLegerSelfId": "n0"}
    member = config(None, enableDLegerCommitLog="true", namesrvAddr="10.0.0.9:9876", **group)
    known = {"a": {"brokerName": "a", "cluster": "DefaultCluster", "brokerAddrs": {"0": "10.0.0.7:10911"}}}
    fake_brokers.answers = {"10.0.0.9:9876": {CLUSTER: answer({"brokerAddrTable": known})}}
    (finding,) = doctor_peers.check_name_servers(member, timeout_s=1)
    assert (finding.level, finding.what) == ("ok", "10.0.0.9:9876: a with brokerId 0 is registered")


def test_all_is_told_and_counted(tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(f"brokerName=a\nlistenPort=0\nhaListenPort=0\nstorePathRootDir={tmp_path}/s\n")
    with listening() as port:
        assert run(["doctor", "-c", str(path), "--set", f"listenPort={port}", "--format", "json"]) == 1
    findings = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    failed = [one["what"] for one in findings if one["level"] == "fail"]
    assert f"listenPort 127.0.0.1:{port}: is taken" in failed
    run(["doctor", "-c", str(path)])
    assert capsys.readouterr().out.splitlines()[-1].split()[1] == "failed,"
    assert not (tmp_path / "s").exists()
    path.write_text("brokerNmae=a\n")
    assert run(["doctor", "-c", str(path)]) == 2


def test_a_store_that_another_file_s_broker_runs_on_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copied file with other ports: doctor said that its broker runs, and the start was refused."""

    def refuse(address: str, *, timeout_s: float) -> None:
        del timeout_s
        raise UnreachableError(address, "Connection refused")

    monkeypatch.setattr(doctor_peers, "runtime_table", refuse)
    (finding,) = doctor_peers.check_own(config(listenPort="19999"), timeout_s=1.0)
    assert (finding.level, "none listens at 127.0.0.1:19999" in finding.what) == ("fail", True)


@pytest.mark.parametrize(("live", "level"), [(1, None), (2, "warn")])
def test_a_slave_that_ha_peers_does_not_name_is_told_of(
    live: int, level: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it alone had acknowledged was overwritten after the master's loss; nobody had said a word."""
    facts = master(connection())
    facts["ha"]["live_slaves"] = live
    monkeypatch.setattr(doctor_peers, "runtime_table", lambda _address, *, timeout_s: {})
    monkeypatch.setattr(doctor_peers, "read_status", lambda _table: facts)
    findings = [*doctor_peers.check_own(config(haPeers="10.0.0.2:10912"), timeout_s=1.0)]
    assert [finding.level for finding in findings if finding.area == "haPeers"] == ([level] if level else [])
    findings = [*doctor_peers.check_own(config(), timeout_s=1.0)]
    assert [finding.area for finding in findings] == ["status"], "that it names nobody is told with its settings"


def test_a_broker_of_a_dledger_group_tells_how_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no slaves that could be counted."""
    facts = {key: value for key, value in master(connection()).items() if key != "ha"}
    monkeypatch.setattr(doctor_peers, "runtime_table", lambda _address, *, timeout_s: {})
    monkeypatch.setattr(doctor_peers, "read_status", lambda _table: facts)
    monkeypatch.setattr(
        doctor_peers, "judge", lambda _facts: Verdict("degraded", "n0", ("nobody leads",), in_sync=False)
    )
    (finding,) = doctor_peers.check_own(config(), timeout_s=1.0)
    assert (finding.level, finding.what) == ("warn", "degraded: n0; nobody leads")
