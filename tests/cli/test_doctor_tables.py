"""`rmqha doctor` of a broker that does not run: the tables that a start would begin with."""

import json
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from rmqha.cli import doctor_tables
from rmqha.cli.doctor_tables import check_tables
from rmqha.cli.finding import Finding
from rmqha.cli.pages import Page
from rmqha.config import BrokerConfig, load_config
from rmqha.errors import StoreReadError
from rmqha.store.config_files import ConfigFiles
from rmqha.store.os_disk import OsDisk
from tests.broker.machines import Machine, ask, send_request
from tests.sim.sim_net import SimNet
from tests.stores import unpack

NAME = "consumerOffset.json"


def config(store: Path, **settings: str) -> BrokerConfig:
    return load_config(None, {"brokerName": "a", "storePathRootDir": str(store)} | settings)


def put(store: Path, text: str | None, backup: str | None) -> None:
    for name, content in ((NAME, text), (f"{NAME}.bak", backup)):
        path = store / "config" / name
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_text(content)


def test_a_store_of_rocketmqs_is_good(tmp_path: Path) -> None:
    assert [*check_tables(config(unpack("basic", tmp_path)))] == []


@pytest.mark.parametrize("text", ["", "[]", '{"x', '{"offsetTable": {"t@g": {"0": "x"}}}', None])
@pytest.mark.parametrize(
    ("backup", "told"),
    [
        ('{"offsetTable": {}}', [("warn", "a start takes its backup, which lacks the last change")]),
        ("", [("fail", "nor is its backup one: a start begins without it")]),
        ('{"offsetTable": {"t@g": {"0": "x"}}}', [("fail", "nor is its backup one: a start begins without it")]),
    ],
)
def test_what_is_no_table_is_told_before_consumers_begin_anew(
    text: str | None, backup: str, told: list[tuple[str, str]], tmp_path: Path
) -> None:
    put(tmp_path, text, backup)
    (finding,) = check_tables(config(tmp_path))
    ((level, words),) = told
    assert (finding.level, finding.next) == (level, Page.LOST_TABLES)
    assert finding.what.startswith(f"{tmp_path}/config/{NAME} is ")
    assert finding.what.endswith(words)


def test_a_slave_has_it_from_its_master(tmp_path: Path) -> None:
    put(tmp_path, "", None)
    settings = {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": "10.0.0.1:10912"}
    (finding,) = check_tables(config(tmp_path, **settings))
    assert finding.level == "warn"
    assert finding.what.endswith("a slave has it from its master")


def test_one_that_may_not_be_read_keeps_it_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_bytes(_disk: OsDisk, path: str) -> bytes:
        raise StoreReadError(PermissionError(13, "Permission denied"), operation="read", path=path)

    put(tmp_path, "{}", None)
    monkeypatch.setattr(OsDisk, "read_bytes", read_bytes)
    (finding,) = check_tables(config(tmp_path))
    assert isinstance(finding, Finding)
    assert (finding.level, f"{NAME}: Permission denied (errno 13): a start refuses" in finding.what) == ("fail", True)


def test_topics_that_are_missing_beside_a_log_are_told_of(tmp_path: Path) -> None:
    """A broker that has sent anything has saved them before; one that never ran has none."""
    assert [*check_tables(config(tmp_path))] == []
    store = unpack("basic", tmp_path)
    for name in ("topics.json", "topics.json.bak"):
        (store / "config" / name).unlink(missing_ok=True)
    (finding,) = check_tables(config(store))
    assert (finding.level, "topics.json is missing" in finding.what) == ("fail", True)


def test_a_table_that_has_been_saved_and_is_missing_is_told_of(tmp_path: Path) -> None:
    """Its groups begin anew; a store without offsets is a good one as long as none were saved."""
    store = unpack("basic", tmp_path)
    put(store, None, None)
    assert [*check_tables(config(store))] == []
    noted = {"term": -1, "tables": ["topics.json", NAME]}
    (store / "config" / "tablesOrigin.json").write_text(json.dumps(noted))
    (finding,) = check_tables(config(store))
    assert (finding.level, finding.next) == ("fail", Page.LOST_TABLES)
    assert finding.what.startswith(f"{store}/config/{NAME} is missing, nor is its backup one")


def member(store: Path, **settings: str) -> BrokerConfig:
    of_group = {"enableDLegerCommitLog": "true", "dLegerPeers": "n0-127.0.0.1:40911", "dLegerSelfId": "n0"}
    return config(store, **of_group, dLegerGroup="g", **settings)


def test_a_dledger_member_has_them_from_the_others(tmp_path: Path) -> None:
    put(tmp_path, "", None)
    (finding,) = check_tables(member(tmp_path))
    assert (finding.level, finding.what.endswith("a start takes what the other members have")) == ("warn", True)


@pytest.mark.parametrize("place", ["dledger-n0/data", "disk1", "commitlog"])
def test_topics_that_are_missing_beside_a_members_log_are_told_of(place: str, tmp_path: Path) -> None:
    """A new member, or one that was emptied, has neither; the classic broker's log before the group counts, too."""
    settings = {"dataStorePath": f"{tmp_path}/disk1"} if place == "disk1" else {}
    (tmp_path / place).mkdir(parents=True)
    assert [*check_tables(member(tmp_path, **settings))] == []
    (tmp_path / place / f"{0:020d}").touch()
    (finding,) = check_tables(member(tmp_path, **settings))
    assert (finding.level, finding.next) == ("warn", Page.LOST_TABLES)
    assert finding.what.startswith(f"{tmp_path}/config/topics.json is missing, nor is its backup one")
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text('{"topicConfigTable": {}}')
    assert [*check_tables(member(tmp_path, **settings))] == []


def test_a_log_that_may_not_be_looked_at_is_told_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def listdir(_disk: OsDisk, path: str) -> list[str]:
        raise StoreReadError(PermissionError(13, "Permission denied"), operation="list", path=path)

    monkeypatch.setattr(OsDisk, "listdir", listdir)
    assert [*check_tables(member(tmp_path))] == []


async def test_all_that_a_start_reads_is_looked_at(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    """The names that operators keep in a broker, kvConfig.json, were not."""
    read, load = set[str](), ConfigFiles.load

    def noted(files: ConfigFiles, name: str, *take: Any) -> Any:
        read.add(name)
        return load(files, name, *take)

    monkeypatch.setattr(ConfigFiles, "load", noted)
    machine = Machine(SimNet(), "10.0.0.1")
    for _ in range(2):  # whose tables these are is asked where there are any
        async with machine.broker(), machine.client() as client:
            await ask(client, send_request(b"x"))
    assert read == set(doctor_tables._TABLES)


@pytest.mark.parametrize(("name", "level"), [("kvConfig.json", "fail"), ("tablesOrigin.json", "warn")])
@pytest.mark.parametrize("role", [{}, {"haPeers": "10.0.0.1:10912"}])
def test_of_what_no_other_broker_has_a_start_begins_without_it(
    name: str, level: str, role: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / name).write_text("{")
    (finding,) = check_tables(config(tmp_path, **role))
    assert (finding.level, finding.what.endswith("a start begins without it")) == (level, True)
    if name == "kvConfig.json":
        (tmp_path / "config" / name).write_text('{"configTable": {"a": 1}}')
        (finding,) = check_tables(config(tmp_path, **role))
        assert "no table of names and values" in finding.what
