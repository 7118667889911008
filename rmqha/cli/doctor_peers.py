"""``rmqha doctor``: what other brokers and name servers say. They are asked, and nothing is changed."""

from collections.abc import Iterator
from typing import Any, Final

from rmqha.cli.ask import known_brokers, runtime_table
from rmqha.cli.errors import CliError
from rmqha.cli.finding import FAIL, OK, WARN, Finding
from rmqha.cli.verdict import read_status
from rmqha.config import BrokerConfig, split_address
from rmqha.logs import escaped

Findings = Iterator[Finding]

_SLAVE: Final = "SLAVE"
_NO_FACTS: Final = (AttributeError, LookupError, TypeError, ValueError)


def check_relations(config: BrokerConfig) -> Findings:
    """What a pair needs to know of each other."""
    if config.enable_dleger_commit_log:
        told = "'rmqha dledger status' asks the group"
        yield Finding(OK, "group", f"member {config.d_leger_self_id} of DLedger group {config.d_leger_group}: {told}")
    elif config.is_slave:
        if not (config.master_address or config.namesrv_addr):
            told = "set masterAddress (the master's listenPort), unless that is the port below its HA port"
            yield Finding(OK, "masterAddress", f"not set: {told}")
    elif not config.ha_peers:
        told = (
            "set haPeers to the other replicas' HA ports: a master that lost its last messages, or comes back after a "
            "failover, fetches what they hold before it takes sends"
        )
        yield Finding(WARN, "haPeers", "not set: no replica is asked what this master may have lost", told)


def check_peers(config: BrokerConfig, *, timeout_s: float) -> Findings:
    """The other brokers of the group that the configuration names."""
    if config.enable_dleger_commit_log:
        return
    for key, address in _peer_addresses(config):
        try:
            facts = read_status(runtime_table(address, timeout_s=timeout_s))
        except CliError as error:
            told = "is it running? Its listenPort is taken to be the one below its HA port"
            yield Finding(WARN, key, escaped(f"{address}: {error.message}: {error.why}"), told)
            continue
        except _NO_FACTS as error:
            yield Finding(WARN, key, f"{address}: its status cannot be read: {type(error).__name__}")
            continue
        problems = list(_clashes(config, key, facts))
        for what, told in problems:
            yield Finding(FAIL, key, escaped(f"{address}: {what}"), told)
        if not problems:
            named = f"{facts.get('role', facts['version'])} {facts.get('broker_name', '')}".strip()
            yield Finding(OK, key, escaped(f"{address}: {named}"))


def _peer_addresses(config: BrokerConfig) -> Iterator[tuple[str, str]]:
    ha_addresses = [("haMasterAddress", config.ha_master_address)] if config.is_slave else []
    ha_addresses += [("haPeers", peer) for peer in config.ha_peers if not config.is_slave]
    for key, address in ha_addresses:
        if address:
            host, port = split_address(address)
            shown = f"[{host}]" if ":" in host else host
            yield key, f"{shown}:{port - 1}"
    if config.is_slave and config.master_address:
        yield "masterAddress", config.master_address


def _clashes(config: BrokerConfig, key: str, facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong, and what to do."""
    if "broker_name" not in facts:
        return
    name, broker_id, role = facts["broker_name"], facts["broker_id"], facts["role"]
    if name != config.broker_name:
        told = "brokers that replicate each other have the same brokerName, others have another"
        yield f"its brokerName is {name}, not {config.broker_name}", told
        return
    if broker_id == config.broker_id:
        told = "0 is the master's, each slave has its own" if broker_id else "one of the two has to become a slave"
        yield f"it has brokerId {broker_id} as well", told
    if key == "masterAddress" and role == _SLAVE:
        yield "it is a slave", "name the master"
    size = facts.get("mapped_file_size_commit_log")
    if size is not None and size != config.mapped_file_size_commit_log:
        told = "a slave's segments have the size of its master's: set it before its store is made"
        yield f"its mappedFileSizeCommitLog is {size}, not {config.mapped_file_size_commit_log}", told


def check_name_servers(config: BrokerConfig, *, timeout_s: float) -> Findings:
    """Whether they answer, and whether another broker is registered in this one's place."""
    own = f"{config.broker_ip1}:{config.listen_port}"
    for address in config.namesrv_addr:
        try:
            known = known_brokers(address, timeout_s=timeout_s).get(config.broker_name)
        except CliError as error:
            told = "is it running, and is this its address?"
            yield Finding(WARN, "namesrvAddr", escaped(f"{address}: {error.message}: {error.why}"), told)
            continue
        broker_id = 0 if config.enable_dleger_commit_log else config.broker_id
        other = known.broker_addrs.get(broker_id) if known is not None else None
        named = f"{config.broker_name} with brokerId {broker_id}"
        if known is not None and known.cluster != config.broker_cluster_name:
            told = "give one of them another brokerName, or both the same brokerClusterName"
            what = f"{address} knows {config.broker_name} in cluster {known.cluster}, not {config.broker_cluster_name}"
            yield Finding(FAIL, "namesrvAddr", escaped(what), told)
        elif other not in (None, own) and not config.enable_dleger_commit_log:
            told = "give one of them another brokerName (or brokerId, if it is a slave), or stop the other one"
            yield Finding(FAIL, "namesrvAddr", escaped(f"{address} knows {named} at {other}, not at {own}"), told)
        else:
            yield Finding(OK, "namesrvAddr", f"{address}: {named} is {'registered' if other else 'free'}")
