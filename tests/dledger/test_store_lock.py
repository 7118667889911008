"""A member's directories are its own for as long as it runs: two writers of one file lose what both acknowledged."""

from dataclasses import replace
from pathlib import Path

import pytest

from rmqha.broker.dledger.dledger_options import server_options
from rmqha.config.load_dledger import load_dledger_settings
from rmqha.dledger.dledger_config import DLedgerConfig
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.member_state import MemberState
from rmqha.errors import StoreLockedError
from rmqha.store.os_disk import OsDisk


def config_of(base: Path, member: str, data: str, read_only: str = "") -> DLedgerConfig:
    settings = load_dledger_settings({"dataStorePath": data, "readOnlyDataStoreDirs": read_only})
    options = server_options(settings, "g", member, peers={member: "127.0.0.1:20911"}, store_base_dir=str(base))
    return replace(options.store, mapped_file_size_for_entry_data=65536, mapped_file_size_for_entry_index=320)


def started(config: DLedgerConfig) -> DLedgerMmapFileStore:
    store = DLedgerMmapFileStore(config, MemberState(config.self_id), OsDisk())
    store.startup()
    return store


def test_a_directory_of_data_belongs_to_one_member(tmp_path: Path) -> None:
    first = started(config_of(tmp_path, "n0", f"{tmp_path}/d1,{tmp_path}/d2"))
    other = config_of(tmp_path, "n1", f"{tmp_path}/d2,{tmp_path}/d3")
    with pytest.raises(StoreLockedError, match=r"/d2 \(dataStorePath.*needs directories of its own"):
        started(other)
    first.close()
    started(other).close()  # and what it took before the refusal was given back


def test_so_does_one_to_read_from(tmp_path: Path) -> None:
    first = started(config_of(tmp_path, "n0", f"{tmp_path}/d1"))
    with pytest.raises(StoreLockedError, match="/d1 "):
        started(config_of(tmp_path, "n1", f"{tmp_path}/d3", f"{tmp_path}/d1"))
    first.close()


def test_one_that_is_not_there_to_read_from_is_not_made(tmp_path: Path) -> None:
    started(config_of(tmp_path, "n0", f"{tmp_path}/d1", f"{tmp_path}/gone")).close()
    assert not (tmp_path / "gone").exists()


def test_two_names_of_one_directory_are_not_two_disks(tmp_path: Path) -> None:
    (tmp_path / "d1").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "d1")
    with pytest.raises(StoreLockedError, match="named twice"):
        started(config_of(tmp_path, "n0", f"{tmp_path}/d1,{tmp_path}/link"))
