"""Whose store a directory is: a member that has none there where others have is most often one with another's id."""

from pathlib import Path

import pytest

from rmqha.broker.dledger.dledger_options import server_options
from rmqha.config.load_dledger import load_dledger_settings
from rmqha.dledger.other_members import OtherMembers, find_other_members, find_others_data
from rmqha.store.os_disk import OsDisk


def found(base: Path) -> OtherMembers | None:
    peers = {"n1": "127.0.0.1:20911"}
    options = server_options(load_dledger_settings({}), "g", "n1", peers=peers, store_base_dir=str(base))
    return find_other_members(options.store, OsDisk())


def make(base: Path, *paths: str) -> None:
    for path in paths:
        (base / path).parent.mkdir(parents=True, exist_ok=True)
        (base / path).write_bytes(b"currTerm=3\n")


@pytest.mark.parametrize("suffix", ["", ".tmp", ".bak"])
def test_the_store_of_another_is_told_with_what_to_do(suffix: str, tmp_path: Path) -> None:
    make(tmp_path, f"dledger-n0/currterm{suffix}", "dledger-n1/lock")
    others = found(tmp_path)
    assert others is not None
    assert f"{tmp_path} is the store of member n0, and n1 has none there ({tmp_path}/dledger-n1)" in others.what
    assert "dLegerSelfId) is a mistake, it is n0" in others.next
    assert f"rename {tmp_path}/dledger-n0 to dledger-n1" in others.next


@pytest.mark.parametrize(
    "paths",
    [
        (),
        ("dledger-n0/lock",),
        ("dledger-n0.damaged/currterm", "dledger-n1-old/currterm", "x-dledger-n0/currterm"),
        ("dledger-n0/currterm", "dledger-n1/currterm"),
    ],
    ids=["nothing", "nobody who ever followed", "what was moved away", "its own, too"],
)
def test_nothing_is_told_of(paths: tuple[str, ...], tmp_path: Path) -> None:
    make(tmp_path, *paths)
    assert found(tmp_path) is None


def test_a_directory_that_is_not_there_is_nobodys(tmp_path: Path) -> None:
    assert found(tmp_path / "new") is None


def data_of_others(base: Path) -> OtherMembers | None:
    settings = load_dledger_settings({"dataStorePath": f"{base}/d1,{base}/d2"})
    options = server_options(settings, "g", "n1", peers={"n1": "127.0.0.1:20911"}, store_base_dir=str(base))
    return find_others_data(options.store, OsDisk())


def test_data_files_without_index_and_term_are_not_taken_for_ones_own(tmp_path: Path) -> None:
    make(tmp_path, "d2/00000000000000000000")
    others = data_of_others(tmp_path)
    assert others is not None
    assert f"data files in {tmp_path}/d2, and {tmp_path}/dledger-n1 has neither their index nor a term" in others.what
    assert "dataStorePath" in others.next
    assert f"write 'currTerm=1' into {tmp_path}/dledger-n1/currterm" in others.next
    make(tmp_path, "dledger-n1/currterm")
    assert data_of_others(tmp_path) is None


@pytest.mark.parametrize(
    "paths",
    [(), ("d1/lost+found",), ("d1/00000000000000000000", "dledger-n1/currterm")],
    ids=["nothing", "no data file", "its own"],
)
def test_ones_own_data_or_none_is_good(paths: tuple[str, ...], tmp_path: Path) -> None:
    make(tmp_path, *paths)
    assert data_of_others(tmp_path) is None
