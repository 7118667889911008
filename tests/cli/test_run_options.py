"""`rmqha master`, `slave`, `broker`: each option sets the keys that it stands for, and changes no other."""

from dataclasses import fields
from typing import Any, Final

import click
import pytest

from rmqha.cli.main import cli
from rmqha.cli.run_broker import build_config
from rmqha.config import BrokerConfig

COMMANDS: Final = ("broker", "master", "slave")
ALLOW: Final = {"allowInsecure": "true", "brokerIP1": "10.0.0.8", "brokerIP2": "10.0.0.9"}
PLACES: Final[list[tuple[str, dict[str, Any], dict[str, Any]]]] = [
    ("store", {"store": "/data/x"}, {"store_path_root_dir": "/data/x", "store_path_commit_log": "/data/x/commitlog"}),
    (
        "listen",
        {"listen": ("127.0.0.3", "20011"), "ha_listen": ("127.0.0.4", "20017")},
        {
            "bind_address": "127.0.0.3", "broker_ip1": "127.0.0.3", "listen_port": 20011,
            "ha_bind_address": "127.0.0.4", "broker_ip2": "127.0.0.4", "ha_listen_port": 20017,
        },
    ),
    (
        "ha_listen",
        {"ha_listen": ("127.0.0.4", "20017")},
        {"ha_bind_address": "127.0.0.4", "broker_ip2": "127.0.0.4", "ha_listen_port": 20017},
    ),
    ("ha_listen", {"ha_listen": ("", "20017")}, {"ha_listen_port": 20017}),
    ("listen", {"listen": ("", "20011")}, {"listen_port": 20011, "ha_listen_port": 20012}),
    (
        "listen",
        {"listen": ("0.0.0.0", "20011"), "ha_listen": ("0.0.0.0", "20017"), "settings": ALLOW},
        {
            "bind_address": "0.0.0.0", "broker_ip1": "10.0.0.8", "listen_port": 20011,
            "ha_bind_address": "0.0.0.0", "broker_ip2": "10.0.0.9", "ha_listen_port": 20017,
            "allow_insecure": True,
        },
    ),
    ("settings", {"settings": {"maxMessageSize": "1048576"}}, {"max_message_size": 1048576}),
]  # fmt: skip
"""An option, what it is given, and all that differs then from a start without it."""


def changed(command: str, **options: Any) -> dict[str, Any]:
    """What the options change."""
    follows: dict[str, Any] = {"ha_master": "127.0.0.9:10912"} if command == "slave" else {}
    plain = build_config(command, path=None, **follows)
    return difference(plain, build_config(command, path=None, **follows, **options))


def difference(one: BrokerConfig, other: BrokerConfig) -> dict[str, Any]:
    names = [field.name for field in fields(one) if field.name not in {"origins", "notes"}]
    return {name: getattr(other, name) for name in names if getattr(one, name) != getattr(other, name)}


@pytest.mark.parametrize(("option", "given", "expected"), PLACES)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_option_changes_its_keys_and_what_follows_from_them(
    command: str, option: str, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert option in given
    assert changed(command, **given) == expected


def test_where_a_slave_copies_from() -> None:
    one, other = (build_config("slave", path=None, ha_master=f"127.0.0.{number}:10912") for number in (3, 4))
    assert difference(one, other) == {"ha_master_address": "127.0.0.4:10912"}


@pytest.mark.parametrize("command", COMMANDS)
def test_each_option_is_one_of_these(command: str) -> None:
    """One that is new is to be looked at here as well."""
    found = cli.get_command(click.Context(cli), command)
    assert found is not None
    names = {str(parameter.name) for parameter in found.params} - {"path", "log_format", "log_level"}
    own = {"ha_master"} if command == "slave" else set()
    assert names == {option for option, _, _ in PLACES} | own
