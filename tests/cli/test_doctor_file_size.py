"""`rmqha doctor`: a limit of the size of files, of this process or of that of the broker that runs."""

import os
import resource

import pytest

from rmqha.cli import doctor_file_size
from rmqha.cli.doctor_file_size import check_file_size
from rmqha.config import load_config


@pytest.mark.parametrize(
    ("limit", "level"), [(None, None), (1 << 31, "ok"), (1 << 20, "fail")], ids=["none", "large", "small"]
)
def test_files_that_cannot_be_made_fail(limit: int | None, level: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_file_size, "raise_file_size_limit", lambda: limit)
    found = list(check_file_size(load_config(None, {}), pid=None))
    assert [finding.level for finding in found] == [level] * len(found)
    assert len(found) == (level is not None)


def test_of_a_broker_that_runs_its_own_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_file_size, "raise_file_size_limit", lambda: 1)
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    expected = [] if soft == resource.RLIM_INFINITY else ["ok"]
    assert [finding.level for finding in check_file_size(load_config(None, {}), pid=os.getpid())] == expected
    assert list(check_file_size(load_config(None, {}), pid=0)) == [], "the kernel does not tell"
