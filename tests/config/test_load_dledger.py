"""``--set`` of a DLedger member."""

from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from rmqha.broker.dledger.dledger_options import server_options
from rmqha.choices import DLedgerAck
from rmqha.config.load_dledger import DLEDGER_KEYS, load_dledger_settings
from rmqha.dledger.dledger_config import DLedgerConfig
from rmqha.dledger.dledger_entry_pusher import PusherOptions
from rmqha.dledger.elector_options import ElectorOptions
from rmqha.dledger.entry_dispatcher import PushOptions
from rmqha.dledger.leadership_transfer import TransferOptions
from rmqha.errors import ConfigError

PEERS = {"n0": "127.0.0.1:1", "n1": "[::1]:2"}


@pytest.mark.parametrize("kind", [DLedgerConfig, ElectorOptions, PushOptions, PusherOptions, TransferOptions])
def test_a_default_is_said_once(kind: Any) -> None:
    """In the table of keys."""
    assert [field.name for field in fields(kind) if field.default is not MISSING] == []
    assert [field.name for field in fields(kind) if field.default_factory is not MISSING] == []


def test_the_defaults_are_dledger_s() -> None:
    """Spec: dledger §8; but for what waits together, which DLedger pushes one by one."""
    options = server_options(load_dledger_settings({}), "g", "n0", peers=PEERS, store_base_dir="/s")
    assert options.store == DLedgerConfig(
        store_base_dir="/s",
        self_id="n0",
        data_store_path="",
        read_only_data_store_dirs="",
        mapped_file_size_for_entry_data=1 << 30,
        mapped_file_size_for_entry_index=160 << 20,
        flush_file_interval_s=0.01,
        check_point_interval_s=3.0,
        file_reserved_hours=72,
        delete_when=(4,),
        disk_space_ratio_to_check_expired=0.7,
        disk_space_ratio_to_force_clean=0.85,
        enable_disk_force_clean=True,
        acks_flushed=True,
    )
    assert options.elector == ElectorOptions(2.0, 3, 0.3, 1.0, 0.03, 0.1)
    assert options.pusher == PusherOptions(PushOptions(1.0, 300 << 20, 20 << 20, True, 64 << 10), 2.5, 10_000, True)
    assert options.transfer == TransferOptions(1000, 1.0, ())
    assert options.peers == {"n0": ("127.0.0.1", 1), "n1": ("::1", 2)}
    assert all(key.meaning for _attribute, key in DLEDGER_KEYS.values())


def test_every_key_has_an_effect_and_a_row() -> None:
    """Of the page: run ``rmqha config reference > docs/configuration.md`` when it has none."""
    kinds: list[Any] = [DLedgerConfig, ElectorOptions, PushOptions, PusherOptions, TransferOptions]
    used = {"dledger_ack"} | {field.name for kind in kinds for field in fields(kind)}
    assert [name for name, (attribute, _key) in DLEDGER_KEYS.items() if attribute not in used] == []
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
    _before, _heading, section = page.partition("## A member of a DLedger group")
    section = section.partition("\n## ")[0]
    assert [name for name in DLEDGER_KEYS if f"\n| `{name}`" not in section] == []
    assert "no TLS" in section


@pytest.mark.parametrize(
    ("data", "read_only"), [("/a", "/a"), ("/a,/b", "/b/, /a"), ("/a/", "/c,/a"), ("", "/s/dledger-n0/data/")]
)
def test_a_directory_is_left_in_which_files_are_made(data: str, read_only: str) -> None:
    settings = load_dledger_settings({"dataStorePath": data, "readOnlyDataStoreDirs": read_only})
    with pytest.raises(ConfigError, match="readOnlyDataStoreDirs names all directories of dataStorePath"):
        server_options(settings, "g", "n0", peers=PEERS, store_base_dir="/s")


def test_a_directory_is_one_however_it_is_written() -> None:
    """Its files would be there twice."""
    settings = load_dledger_settings({"dataStorePath": "/a/, /b,/a", "readOnlyDataStoreDirs": "/b//"})
    store = server_options(settings, "g", "n0", peers=PEERS, store_base_dir="/s").store
    assert (store.data_store_paths, store.read_only_paths) == (["/a", "/b"], ["/b"])


def test_what_is_set_arrives_where_it_is_used() -> None:
    settings = load_dledger_settings(
        {
            "heartBeatTimeIntervalMs": "500",
            "mappedFileSizeForEntryData": "4096",
            "dataStorePath": "/a,/b",
            "dledgerAck": "written",
            "preferredLeaderIds": "n1;n0",
            "peerPushQuota": "7",
            "deleteWhen": "04;16",
            "diskSpaceRatioToForceClean": "0.9",
        }
    )
    assert settings.dledger_ack is DLedgerAck.WRITTEN
    options = server_options(settings, "g", "n0", peers=PEERS, store_base_dir="/s")
    assert options.elector.heart_beat_time_interval_s == 0.5
    assert (options.store.mapped_file_size_for_entry_data, options.store.data_store_paths) == (4096, ["/a", "/b"])
    assert (options.store.acks_flushed, options.pusher.acks_flushed) == (False, False)
    assert (options.store.delete_when, options.store.disk_space_ratio_to_force_clean) == ((4, 16), 0.9)
    assert options.transfer.preferred_leader_ids == ("n1", "n0")
    assert options.pusher.push.peer_push_quota == 7


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("heartbeatTimeIntervalMs", "5", "the nearest is heartBeatTimeIntervalMs"),
        ("selfId", "n1", "is given by --id"),
        ("xyzzy", "1", "no such key"),
        ("maxHeartBeatLeak", "0", "0 is outside 1..1000"),
        ("dledgerAck", "both", "is not one of flushed, written"),
        ("diskSpaceRatioToForceClean", "85", "is not a ratio"),
        ("minVoteIntervalMs", "2000", "is above maxVoteIntervalMs"),
        ("mappedFileSizeForEntryIndex", "33", "no multiple of 32"),
    ],
)
def test_what_is_wrong_is_refused(key: str, value: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load_dledger_settings({key: value})
