"""A systemd runs the brokers' unit: what it does with an exit code, a kill and a stop only it can say.

It is a user's own, in namespaces of its own: what forbids a broker anything is left out, as only the system's can.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from shutil import which

import pytest

from tests.e2e.processes import free_ports

UNIT = Path(__file__).parents[2] / "scripts" / "rmqha@.service"
SYSTEMD = "/lib/systemd/systemd"
LIFE = {"Type", "ExecStartPre", "ExecStart", "ExecReload", "KillSignal", "Restart", "RestartSec"}
LIFE |= {"RestartPreventExitStatus", "TimeoutStartSec", "TimeoutStopSec", "WatchdogSec"}
MANAGER = """
set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system
timeout 100 {systemd} --user --log-target=console > {directory}/systemd.log 2>&1 &
sleep 2
state() {{ systemctl --user show "$1" -p "$2" --value; }}
wait_for() {{ for _ in $(seq 300); do [ "$(state "$1" "$2")" = "$3" ] && return; sleep 0.1; done; }}
"""


def why_no_systemd() -> str:
    """Why none can be run here; empty if one can."""
    if not which(SYSTEMD) or not which("systemctl"):
        return "systemd is not installed"
    tried = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], check=False, capture_output=True)
    return f"no namespaces: {tried.stderr.decode().strip()}" if tried.returncode else ""


def unit_for(conf: Path) -> str:
    """The shipped unit, for a broker of this interpreter's that has this file."""
    lines = UNIT.read_text().splitlines()
    kept = [line for line in lines if line.partition("=")[0] in LIFE]
    service = "\n".join(["[Service]", f"WorkingDirectory={conf.parent}", *kept])
    service = service.replace("/opt/rmqha/bin/rmqha", f"{sys.executable} -m rmqha")
    return service.replace("/etc/rmqha/%i.conf", str(conf))


def run_by_systemd(directory: Path, units: Mapping[str, str], script: str) -> dict[str, str]:
    """What ``script`` prints as ``name=value``, run beside a systemd that has these units."""
    if reason := why_no_systemd():
        pytest.skip(reason)
    home = directory / "conf"
    (home / "systemd" / "user").mkdir(parents=True)
    for name, text in units.items():
        (home / "systemd" / "user" / f"{name}.service").write_text(text)
    (directory / "run").mkdir(mode=0o700)
    full = MANAGER.format(systemd=SYSTEMD, directory=shlex.quote(str(directory))) + script
    run = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", "-c", full],
        check=False,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(directory / "run"), "XDG_CONFIG_HOME": str(home)},
        timeout=150,
    )
    told = dict(re.findall(r"^([a-z_]+)=(.*)$", run.stdout, re.MULTILINE))
    assert run.returncode == 0, run.stdout + run.stderr + (directory / "systemd.log").read_text()
    return told


def write_conf(directory: Path, *more: str) -> Path:
    """Of a master that needs nobody."""
    conf = directory / "master.conf"
    lines = [f"storePathRootDir={directory}/store", f"listenPort={free_ports().listen}", "brokerRole=ASYNC_MASTER"]
    lines += ["brokerIP1=127.0.0.1", "mappedFileSizeCommitLog=1048576", "diskMaxUsedSpaceRatio=95", *more]
    conf.write_text("\n".join(lines) + "\n")
    return conf


def test_a_configuration_that_cannot_be_used_is_final(tmp_path: Path) -> None:
    """It was tried again every three seconds, for ever: what ``ExecStartPre`` ends with prevents no restart."""
    unit = unit_for(write_conf(tmp_path, "brokerRoel=SLAVE"))
    script = """
systemctl --user start broker && exit 9
wait_for broker ActiveState failed
sleep 5
echo state=$(state broker ActiveState)
echo status=$(state broker ExecMainStatus)
echo restarts=$(state broker NRestarts)
"""
    assert run_by_systemd(tmp_path, {"broker": unit}, script) == {"state": "failed", "status": "2", "restarts": "0"}


def test_a_broker_is_active_when_it_serves_is_started_again_when_it_is_killed_and_stops_clean(tmp_path: Path) -> None:
    script = """
systemctl --user start broker
echo started=$(state broker ActiveState)
systemctl --user reload broker
kill -9 $(state broker MainPID)
wait_for broker NRestarts 1
wait_for broker ActiveState active
echo again=$(state broker ActiveState)
systemctl --user stop broker
echo stopped=$(state broker ActiveState)
echo result=$(state broker Result)
"""
    told = run_by_systemd(tmp_path, {"broker": unit_for(write_conf(tmp_path))}, script)
    assert told == {"started": "active", "again": "active", "stopped": "inactive", "result": "success"}
