from pathlib import Path

import pytest

from rmqha.choices import BrokerRole
from rmqha.cli.main import run
from rmqha.cli.run_broker import build_config
from rmqha.errors import ConfigError

ROOT = Path(__file__).parents[2]


def test_a_master_needs_nothing_at_all() -> None:
    config = build_config("master", path=None)
    assert (config.broker_role, config.listen_port, config.ha_listen_port) == (BrokerRole.ASYNC_MASTER, 10911, 10912)


def test_a_slave_without_a_file_leaves_the_masters_ports_and_store_alone() -> None:
    master = build_config("master", path=None)
    slave = build_config("slave", path=None, ha_master="127.0.0.1:10912")
    assert (slave.broker_role, slave.broker_id) == (BrokerRole.SLAVE, 1)
    ports = {port for c in (master, slave) for port in (c.listen_port - 2, c.listen_port, c.ha_listen_port)}
    assert len(ports) == 6
    assert slave.store_path_root_dir != master.store_path_root_dir
    assert slave.broker_name == master.broker_name


def test_options_win_over_the_file() -> None:
    config = build_config(
        "master",
        path=ROOT / "conf" / "master.conf",
        store="/data/x",
        listen=("", "20011"),
        ha_listen=("127.0.0.2", "0"),
        settings={"brokerName": "other"},
    )
    assert (config.store_path_root_dir, config.store_path_commit_log) == ("/data/x", "/data/x/commitlog")
    assert (config.bind_address, config.listen_port) == ("127.0.0.1", 20011)
    assert (config.ha_bind_address, config.ha_listen_port) == ("127.0.0.2", 0)
    assert config.broker_name == "other"


def test_the_address_listened_on_is_the_one_told_and_a_wildcard_needs_another() -> None:
    allow = {"allowInsecure": "true"}
    named = build_config("master", path=None, listen=("10.0.0.5", "1000"), settings=allow)
    assert (named.broker_ip1, named.bind_address) == ("10.0.0.5", "10.0.0.5")
    with pytest.raises(ConfigError, match=r"told to connect to 127\.0\.0\.1; set brokerIP1"):
        build_config("master", path=None, listen=("0.0.0.0", "1000"), settings=allow)
    assert build_config("master", path=None, listen=("localhost", "1000")).broker_ip1 == "127.0.0.1"
    told = allow | {"brokerIP1": "10.0.0.5"}
    wildcard = build_config("master", path=None, listen=("0.0.0.0", "1000"), settings=told)
    assert (wildcard.broker_ip1, wildcard.bind_address) == ("10.0.0.5", "0.0.0.0")


@pytest.mark.parametrize(("command", "other"), [("master", "slave"), ("slave", "master")])
def test_a_file_for_the_other_command_is_refused(command: str, other: str) -> None:
    path = ROOT / "conf" / f"{other}.conf"
    with pytest.raises(ConfigError, match=rf"use 'rmqha {other}'") as caught:
        build_config(command, path=path)
    assert f"{path}:" in caught.value.problems[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["slave"], "needs haMasterAddress"),
        (["slave", "--ha-master", "nowhere"], "haMasterAddress: 'nowhere' is not host:port"),
        (["master", "--listen", "99999"], "neither PORT nor HOST:PORT"),
        (["master", "--set", "listenPort"], "is not KEY=VALUE"),
        (["master", "--set", "lstenPort=1"], "nearest known key: listenPort"),
        (["master", "--listen", "0.0.0.0:10911"], "allowInsecure=true"),
        (["master", "--listen", "10.0.0.5:10911"], "allowInsecure=true"),
        (["master", "--ha-listen", "10.0.0.5:10912"], "haBindAddress=10.0.0.5 would listen beyond this machine"),
        (["master", "--store", ""], "storePathRootDir is empty"),
        (["master", "-c", "nowhere.conf"], "does not exist"),
        (["config", "show", "--set", "listenPort"], "is not KEY=VALUE"),
    ],
)
def test_what_cannot_be_started_is_said_with_exit_code_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert said in capsys.readouterr().err
