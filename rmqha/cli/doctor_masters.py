"""``rmqha doctor``: whether both addresses of a slave lead to one master. Brokers are asked, and nothing is changed."""

from collections.abc import Iterator
from typing import Final

from rmqha.cli.ask import BrokerConnection, runtime_table
from rmqha.cli.errors import CliError
from rmqha.cli.finding import WARN, Finding
from rmqha.cli.verdict import read_status
from rmqha.codec.codes import STATUS_KEY, RequestCode
from rmqha.codec.host import join_address
from rmqha.config import BrokerConfig, split_told_address
from rmqha.config.java_properties import parse_properties
from rmqha.errors import ConfigError
from rmqha.logs import escaped
from rmqha.replication.log_master import BrokerProcess, process_of, rocketmq_process_of, why_another

_NO_FACTS: Final = (AttributeError, LookupError, RecursionError, TypeError, ValueError, ConfigError)


def check_masters(config: BrokerConfig, *, timeout_s: float) -> Iterator[Finding]:
    """Whether ``masterAddress`` is the master's whose log comes from ``haMasterAddress``, as far as both say."""
    if not (config.is_slave and config.ha_master_address and config.master_address):
        return
    host, ha_port = split_told_address(config.ha_master_address)
    beside = join_address(host, ha_port - 1)
    if beside == config.master_address:
        return
    told, source = (_ask_process(address, timeout_s=timeout_s) for address in (config.master_address, beside))
    if told is None or source is None or source.ha_port != ha_port:
        return
    if why := why_another(told, source, ha_address=config.ha_master_address):
        what, _, next_step = why.partition(". ")
        yield Finding(WARN, "masterAddress", escaped(f"{config.master_address}: {what}"), next_step)


def _ask_process(address: str, *, timeout_s: float) -> BrokerProcess | None:
    """Who the broker there is; None if it does not say: others tell that it does not answer."""
    try:
        table = runtime_table(address, timeout_s=timeout_s)
        if STATUS_KEY in table:
            return process_of(table, read_status(table))
        with BrokerConnection(address, timeout_s=timeout_s) as connection:
            properties, _ = parse_properties(bytes(connection.ask_for(RequestCode.GET_BROKER_CONFIG).body))
        return rocketmq_process_of(table, {one.key: one.value for one in properties})
    except (CliError, *_NO_FACTS):
        return None
