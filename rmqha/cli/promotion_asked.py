"""What ``rmqha promote`` finds out: who answers, and what an old master's store holds beyond a slave's log."""

import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rmqha.cli.ask import ask_broker, known_brokers, runtime_table
from rmqha.cli.doctor_store import end_of, last_records
from rmqha.cli.errors import CliError, UnreachableError
from rmqha.cli.log_difference import compare_with
from rmqha.cli.promotion import OldStore, Overlap, Replica
from rmqha.cli.store_place import commit_log_directory
from rmqha.cli.verdict import read_status
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.host import join_address
from rmqha.codec.remoting import RemotingCommand
from rmqha.config import BrokerConfig, split_told_address
from rmqha.config.java_properties import parse_properties
from rmqha.errors import CorruptLogError
from rmqha.self_connection import refuse_itself
from rmqha.store.known_end import known_end
from rmqha.store.log_reader import LogReader
from rmqha.store.os_disk import OsDisk

_NO_FACTS = (AttributeError, LookupError, RecursionError, TypeError, ValueError)


def own_address(config: BrokerConfig) -> str:
    """Where this broker takes clients."""
    return join_address(config.broker_ip1, config.listen_port)


def other_addresses(
    config: BrokerConfig, own: dict[str, Any], peers: Iterable[str], *, timeout_s: float
) -> tuple[list[str], list[str]]:
    """The listenPorts of all others that the configuration, the slave and the name servers know, once each.

    And the name servers that do not tell.
    """
    silent = list[str]()
    followed = (own.get("ha_client") or {}).get("master")
    ha_addresses = [config.ha_master_address, followed, *config.ha_peers]
    found = [join_address(host, port - 1) for host, port in map(split_told_address, filter(None, ha_addresses))]
    found += [address for address in (config.master_address, *peers) if address]
    for name_server in config.namesrv_addr:
        try:
            known = known_brokers(name_server, timeout_s=timeout_s).get(config.broker_name)
        except CliError:
            silent.append(name_server)
            continue
        found += known.broker_addrs.values() if known is not None else ()
    return [address for address in dict.fromkeys(found) if address != own_address(config)], silent


def ask_replicas(
    addresses: Iterable[str], config: BrokerConfig, own: dict[str, Any], *, timeout_s: float
) -> list[Replica]:
    """What answers at these listenPorts, of which some were named as the slave's master."""
    followed = (own.get("ha_client") or {}).get("master")
    ha_addresses = map(split_told_address, filter(None, [config.ha_master_address, followed]))
    masters = {config.master_address, *(join_address(host, port - 1) for host, port in ha_addresses)}
    asked = [_ask_replica(address, timeout_s=timeout_s) for address in addresses]
    return [replace(one, is_peer=one.address not in masters) for one in asked]


def _ask_replica(address: str, *, timeout_s: float) -> Replica:
    """What answers at a listenPort; one that hangs, or whose HA port alone is open, listens."""
    try:
        facts = read_status(runtime_table(address, timeout_s=timeout_s))
        if "role" not in facts and _is_rocketmqs_slave(address, timeout_s=timeout_s):
            facts["role"] = "SLAVE"
        is_told = facts.get("role") != "SLAVE" or facts.get("starting") or type(facts.get("max_offset")) is int
        return Replica(address, facts) if is_told else Replica(address, None, listens=True)
    except UnreachableError:
        host, port = split_told_address(address)
        return Replica(address, None, listens=any(_listens(host, one, timeout_s) for one in (port, port + 1)))
    except (CliError, *_NO_FACTS):
        return Replica(address, None, listens=True)


def _is_rocketmqs_slave(address: str, *, timeout_s: float) -> bool:
    """Whether its configuration says so, which RocketMQ's brokers tell everybody."""
    answer = ask_broker(address, RemotingCommand(RequestCode.GET_BROKER_CONFIG), timeout_s=timeout_s)
    keys = {one.key: one.value for one in parse_properties(bytes(answer.body or b""))[0]}
    return answer.code == ResponseCode.SUCCESS and keys.get("brokerRole") == "SLAVE" and keys.get("brokerId") != "0"


def _listens(host: str, port: int, timeout_s: float) -> bool:
    with suppress(OSError), socket.create_connection((host, port), timeout_s) as connection:
        refuse_itself(connection)
        return True
    return False


def look_at_old_store(store: Path, own_log: str, offset: int) -> OldStore:
    """What a store holds, how many of its messages begin at ``offset`` or later, and whether it differs before.

    Args:
        store: the old master's, or its commitlog directory.
        own_log: the slave's commitlog directory.
        offset: where the slave's log ends.

    Raises:
        CliError: there is no commitlog.
        StoreReadError: it cannot be read.
    """
    directory, disk = commit_log_directory(str(store)), OsDisk()
    own = Path(own_log)
    known = known_end(disk, str(store))
    messages, end, damage, overlap = 0, 0, "", Overlap()
    is_own = own.exists() and own.samefile(directory)
    with LogReader(disk, directory) as reader:
        if last := last_records(reader):
            end = end_of(*last)
        try:
            for _ in reader.messages(offset):
                messages += 1
        except CorruptLogError as error:
            damage = str(error)
        if not is_own and min(end, offset):
            overlap = compare_with(own_log, reader, min(end, offset))
    if known.offset > end and not damage:
        damage = f"it ends at {end:,}, but {known.who} up to {known.offset:,}"
    return OldStore(str(store), end, messages, damage=damage, is_own=is_own, overlap=overlap)
