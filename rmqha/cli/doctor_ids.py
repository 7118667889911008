"""``rmqha doctor``: whether another slave follows with the brokerId of one that is about to start."""

from collections.abc import Iterator
from math import inf
from typing import Any, Final

from rmqha.cli.ask import runtime_table
from rmqha.cli.errors import CliError
from rmqha.cli.finding import FAIL, Finding
from rmqha.cli.pages import Page
from rmqha.cli.verdict import named, read_status
from rmqha.codec.host import join_address
from rmqha.config import BrokerConfig, split_told_address
from rmqha.logs import escaped

_NO_FACTS: Final = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
_GONE_AFTER_HEARTBEATS: Final = 2


def check_broker_id(config: BrokerConfig, *, timeout_s: float) -> Iterator[Finding]:
    """Of a slave that does not run: who follows its master in its name, as far as that one says."""
    if not config.is_slave or config.enable_dleger_commit_log:
        return
    key, address = "masterAddress", config.master_address
    if config.ha_master_address:
        host, ha_port = split_told_address(config.ha_master_address)
        key, address = "haMasterAddress", join_address(host, ha_port - 1)
    if not address:  # the name server tells who is registered in this one's place
        return
    try:
        others = _followers(read_status(runtime_table(address, timeout_s=timeout_s)), config)
    except (CliError, *_NO_FACTS):
        return  # that it does not answer is told of its address
    for other in others:
        what = f"{address}: {other} follows it with brokerId={config.broker_id} as well: both count as one replica"
        told = f"give this one another brokerId; one that was ended a moment ago is gone in 20 s. {Page.MIXED_UP}"
        yield Finding(FAIL, key, escaped(what), told)


def _followers(facts: dict[str, Any], config: BrokerConfig) -> list[str]:
    """Those of this name and id that were heard a moment ago."""
    ha, name = facts.get("ha") or {}, f"{config.broker_name}/{config.broker_id}"
    silent_s = _GONE_AFTER_HEARTBEATS * ha.get("heartbeat_s", inf)
    return [
        named(one)
        for one in ha.get("connections", ())
        if one.get("name") == name and (one.get("heard_s_ago") or 0.0) <= silent_s
    ]
