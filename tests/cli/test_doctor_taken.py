"""`rmqha doctor`: a store whose slave never had its master's tables."""

from pathlib import Path

import pytest

from rmqha.cli.doctor_taken import check_taken
from rmqha.config import load_config


@pytest.mark.parametrize(
    ("settings", "level", "said"),
    [
        (
            {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": "10.0.0.1:10912"},
            "warn",
            "no backup, and not to be made master",
        ),
        ({"haPeers": "10.0.0.2:10912"}, "warn", "a start takes them from haPeers"),
        ({}, "fail", "a start begins with what the log tells, and consumers anew"),
    ],
)
def test_what_a_slave_has_noted_is_told_before_a_start(
    settings: dict[str, str], level: str, said: str, tmp_path: Path
) -> None:
    config = load_config(None, {"storePathRootDir": str(tmp_path)} | settings)
    assert list(check_taken(config)) == []
    (tmp_path / "tablesNotTaken").touch()
    (finding,) = check_taken(config)
    assert (finding.level, finding.area, said in finding.what) == (level, "tables", True)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["tablesNotTaken"], "tablesNotTaken: as a slave it has not had all of its master's topics"),
        (["mastersTablesLost"], "mastersTablesLost: as a slave it may lack what its master had lost, of topics"),
        (["mastersTablesLost", "tablesNotTaken"], "tablesNotTaken: as a slave it has not had all of its master's"),
    ],
)
def test_what_may_be_missing_is_told_by_what_was_noted(names: list[str], said: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).touch()
    (finding,) = check_taken(load_config(None, {"storePathRootDir": str(tmp_path)}))
    assert finding.what.startswith(said)
