"""What must hold between the keys of a broker on a DLedger group."""

from collections.abc import Iterator
from ipaddress import ip_address
from os.path import normpath

from rmqha.config.broker_config import BrokerConfig
from rmqha.config.derive_dledger import self_number
from rmqha.config.dledger_peers import check_name, parse_peers
from rmqha.config.kinds import split_address
from rmqha.config.load_dledger import settings_problems
from rmqha.config.problem import Problem
from rmqha.config.store_config import COMMIT_LOG_FILE_SIZE_MIN


def dledger_problems(config: BrokerConfig) -> Iterator[Problem]:
    """Each with the keys that it is about."""
    if not config.enable_dleger_commit_log:
        return
    yield from (Problem("enableDLegerCommitLog", reason) for reason in settings_problems(config))
    yield from _members(config)
    if config.mapped_file_size_for_entry_data != config.mapped_file_size_commit_log:
        yield Problem(
            "mappedFileSizeForEntryData mappedFileSizeCommitLog",
            f"mappedFileSizeForEntryData={config.mapped_file_size_for_entry_data} and mappedFileSizeCommitLog="
            f"{config.mapped_file_size_commit_log} mean the same here; set one of them, the same on all members",
        )
    elif config.mapped_file_size_for_entry_data < COMMIT_LOG_FILE_SIZE_MIN:
        yield Problem(
            "mappedFileSizeForEntryData",
            f"mappedFileSizeForEntryData={config.mapped_file_size_for_entry_data} is too small for a broker's "
            f"messages; set at least {COMMIT_LOG_FILE_SIZE_MIN}",
        )
    if "," in config.data_store_path or config.read_only_data_store_dirs:
        yield Problem(
            "storePathDLedgerCommitLog dataStorePath readOnlyDataStoreDirs",
            "a broker's log lies in one directory: name one, and no read-only ones",
        )
    elif normpath(config.data_store_path) == normpath(config.store_path_commit_log):
        yield Problem(
            "storePathDLedgerCommitLog dataStorePath storePathCommitLog",
            f"{config.data_store_path} cannot be the directory of entries and of a classic broker's old commitlog "
            "(storePathCommitLog) at the same time: name another one for the entries",
        )


def _members(config: BrokerConfig) -> Iterator[Problem]:
    try:
        check_name(config.d_leger_group)
    except ValueError as error:
        yield Problem("dLegerGroup brokerName", f"dLegerGroup: {error}")
    try:
        peers = parse_peers(config.d_leger_peers)
    except ValueError as error:
        yield Problem("dLegerPeers enableDLegerCommitLog", f"dLegerPeers: {error}")
        return
    if config.d_leger_self_id not in peers:
        yield Problem(
            "dLegerSelfId enableDLegerCommitLog",
            f"dLegerSelfId={config.d_leger_self_id} is none of dLegerPeers: {', '.join(peers)}",
        )
        return
    if self_number(config.d_leger_self_id) is None:
        text = (
            f"dLegerSelfId={config.d_leger_self_id} is not a letter and a number, such as n0: brokerId follows from it"
        )
        yield Problem("dLegerSelfId", text)
    yield from _other_members(config, peers)
    host, port = split_address(peers[config.d_leger_self_id])
    if config.listen_port and port in (config.listen_port, config.listen_port - 2):
        yield Problem(
            "dLegerPeers listenPort",
            f"dLegerPeers has port {port} for this member, which clients use (listenPort={config.listen_port} and "
            "listenPort - 2): the group needs a port of its own",
        )
    if not (config.allow_insecure or _is_loopback(host)):
        yield Problem(
            "dLegerPeers",
            f"dLegerPeers has {host} for this member, where everybody who reaches port {port} can vote and replicate: "
            "DLedger knows no TLS. Set allowInsecure=true if the network is trusted, or listen on 127.0.0.1",
        )


def _other_members(config: BrokerConfig, peers: dict[str, str]) -> Iterator[Problem]:
    number = self_number(config.d_leger_self_id)
    for peer in peers:
        if peer != config.d_leger_self_id and number is not None and self_number(peer) == number:
            text = f"dLegerPeers: {peer} and {config.d_leger_self_id} have the same number, from which brokerId follows"
            yield Problem("dLegerPeers dLegerSelfId", text)
    if strangers := sorted(set(config.preferred_leader_ids) - peers.keys()):
        text = f"{', '.join(strangers)} is to be preferred as a leader, but is none of dLegerPeers: {', '.join(peers)}"
        yield Problem("preferredLeaderId preferredLeaderIds dLegerPeers", text)


def _is_loopback(address: str) -> bool:
    try:
        return address == "localhost" or ip_address(address).is_loopback
    except ValueError:
        return False
