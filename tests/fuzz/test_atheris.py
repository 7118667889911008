"""Each target for a moment under atheris; RMQHA_FUZZ_SECONDS makes the moment longer (for each of them)."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.request_targets import ALL_TARGETS

SECONDS = int(os.environ.get("RMQHA_FUZZ_SECONDS", "1"))
CHECKOUT = Path(__file__).parents[2]

has_atheris = pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None,
    reason="atheris is not installed: pip install rmqha[fuzz], where it has a wheel",
)


@has_atheris
@pytest.mark.timeout(300 + SECONDS)
@pytest.mark.parametrize("name", ALL_TARGETS)
def test_no_finding(name: str, tmp_path: Path) -> None:
    options = [f"-max_total_time={SECONDS}", "-max_len=4096", "-rss_limit_mb=1024", f"-artifact_prefix={tmp_path}/"]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.run_atheris", name, "-seed=1", *options],
        cwd=CHECKOUT,
        env=os.environ | {"TMPDIR": str(tmp_path)},  # libFuzzer ends the process before its directory is removed
        capture_output=True,
        check=False,
        timeout=SECONDS + 120,
    )
    assert ended.returncode == 0, ended.stderr.decode(errors="replace")[-4000:]
    assert b"Done " in ended.stderr
