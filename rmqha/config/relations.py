"""What must hold between keys. Each rule says what, where it was set, why, and what to do."""

import re
from collections.abc import Callable
from ipaddress import ip_address

from rmqha.choices import BrokerRole, TlsMode
from rmqha.config.broker_config import BrokerConfig
from rmqha.config.derive import RECORD_OVERHEAD_MAX
from rmqha.config.dledger_relations import dledger_problems
from rmqha.config.kinds import split_address
from rmqha.config.listener_relations import in_flight_problems, is_ip, is_loopback, metrics_problems, tls_problems
from rmqha.config.problem import Problem, Problems, problem_lines
from rmqha.config.store_config import INDEX_HEADER_SIZE, INT32_MAX

_HERE = ("127.0.0.1", "localhost")
_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - recognised here, not bound


def check_relations(config: BrokerConfig) -> list[str]:
    """Return one line for each combination that cannot work."""
    rules: tuple[Callable[[BrokerConfig], Problems], ...] = (
        _store,
        _roles,
        _master,
        _peers,
        _replicas,
        _timers,
        _sizes,
        _index,
        _trace,
        _transfer,
        in_flight_problems,
        _disk,
        _addresses,
        _ports,
        tls_problems,
        _acl,
        _ha_tls,
        _listeners,
        _metrics,
        dledger_problems,
    )
    return problem_lines((problem for rule in rules for problem in rule(config)), config.origins)


def _store(config: BrokerConfig) -> Problems:
    if not config.store_path_root_dir:
        yield Problem("storePathRootDir", "storePathRootDir is empty; name the store's directory")
    elif config.store_path_commit_log == config.store_path_root_dir:
        yield Problem(
            "storePathCommitLog storePathRootDir",
            f"storePathCommitLog={config.store_path_commit_log} must be a directory of its own, below storePathRootDir "
            "or elsewhere: it may hold nothing but the log's files",
        )


def _roles(config: BrokerConfig) -> Problems:
    if config.is_slave and config.broker_id == 0:
        yield Problem(
            "brokerId brokerRole",
            "brokerId=0 means master, but brokerRole is SLAVE; give each slave its own number above 0",
        )
    if not config.is_slave and config.broker_id != 0 and not config.enable_dleger_commit_log:
        yield Problem(
            "brokerId brokerRole",
            f"brokerId={config.broker_id} means slave, but brokerRole is {config.broker_role}; "
            "set brokerId=0, or brokerRole=SLAVE",
        )
    if config.is_slave and not (config.ha_master_address or config.namesrv_addr):
        yield Problem(
            "brokerRole",
            "a SLAVE needs haMasterAddress=host:port, the HA port to copy from, or namesrvAddr: then a name server "
            "tells it where its master is",
        )
    elif config.is_slave and not config.ha_master_address and "brokerName" not in config.origins:
        yield Problem(
            "namesrvAddr",
            "a name server knows this slave's master by the name that both have, and so it needs its brokerName; or "
            "set haMasterAddress",
        )


def _master(config: BrokerConfig) -> Problems:
    if not config.is_slave:
        return
    if config.master_address and _is_here(
        config.master_address, config.broker_ip1, config.bind_address, config.listen_port
    ):
        yield Problem(
            "masterAddress",
            f"masterAddress={config.master_address} is this broker's own listenPort; name the master's",
        )
    if config.ha_master_address and _is_own_ha_port(config, config.ha_master_address):
        yield Problem(
            "haMasterAddress",
            f"haMasterAddress={config.ha_master_address} is this broker's own HA port (listenPort + 1 unless "
            "haListenPort is set); name the master's",
        )


def _acl(config: BrokerConfig) -> Problems:
    if config.acl_enable and not config.rocketmq_home:
        yield Problem("aclEnable", "aclEnable=true needs rocketmqHome: accounts are in its conf/plain_acl.yml")
    if config.acl_remote_changes_enable and not config.acl_enable:
        yield Problem("aclRemoteChangesEnable", "aclRemoteChangesEnable=true needs aclEnable=true: it has no accounts")


def _index(config: BrokerConfig) -> Problems:
    size = INDEX_HEADER_SIZE + 4 * config.max_hash_slot_num + 20 * config.max_index_num
    if size > INT32_MAX:
        yield Problem(
            "maxHashSlotNum maxIndexNum",
            f"maxHashSlotNum={config.max_hash_slot_num} and maxIndexNum={config.max_index_num} make index files of "
            f"{size} bytes, at most {INT32_MAX} are possible; each slot takes 4 bytes, each entry 20",
        )


def _peers(config: BrokerConfig) -> Problems:
    """A master that asked itself would believe what it knows already; one that asks a peer twice, that two know it."""
    for peer in {peer for peer in config.ha_peers if config.ha_peers.count(peer) > 1}:
        yield Problem("haPeers", f"haPeers names {peer} twice: each replica counts once")
    for peer in () if config.is_slave else config.ha_peers:
        if _is_own_ha_port(config, peer):
            yield Problem("haPeers", f"haPeers names {peer}, this broker's own HA port; name the other replicas only")


def _is_own_ha_port(config: BrokerConfig, address: str) -> bool:
    return _is_here(address, config.broker_ip2, config.ha_bind_address, config.ha_listen_port)


def _is_here(address: str, told_host: str, bind_address: str, own_port: int) -> bool:
    host, port = split_address(address)
    listens_here = bind_address in (*_HERE, *_EVERYWHERE)
    return port == own_port and (host in (bind_address, told_host) or (listens_here and host in _HERE))


def _replicas(config: BrokerConfig) -> Problems:
    if config.min_in_sync_replicas > config.in_sync_replicas:
        yield Problem(
            "minInSyncReplicas inSyncReplicas",
            f"minInSyncReplicas={config.min_in_sync_replicas} is more than "
            f"inSyncReplicas={config.in_sync_replicas}; a send would need more to start than to succeed",
        )
    if config.broker_role is BrokerRole.SYNC_MASTER and config.in_sync_replicas < 2:
        yield Problem(
            "inSyncReplicas",
            "SYNC_MASTER with inSyncReplicas=1 would not wait for any slave; set at least 2, or ASYNC_MASTER",
        )
    if config.broker_role is BrokerRole.ASYNC_MASTER and config.in_sync_replicas > 1:
        yield Problem(
            "inSyncReplicas",
            f"inSyncReplicas={config.in_sync_replicas} has no effect on an ASYNC_MASTER; set brokerRole=SYNC_MASTER",
        )


def _timers(config: BrokerConfig) -> Problems:
    if config.ha_send_heartbeat_interval_s >= config.ha_housekeeping_interval_s:
        yield Problem(
            "haSendHeartbeatInterval haHousekeepingInterval",
            "haSendHeartbeatInterval must be less than haHousekeepingInterval, "
            "or idle connections would be closed between two heartbeats",
        )
    if config.broker_role is BrokerRole.SYNC_MASTER and config.slave_timeout_s > config.ha_housekeeping_interval_s:
        yield Problem(
            "slaveTimeout haHousekeepingInterval",
            "slaveTimeout must not exceed haHousekeepingInterval, or sends would wait for slaves long gone",
        )


def _sizes(config: BrokerConfig) -> Problems:
    room = config.mapped_file_size_commit_log - RECORD_OVERHEAD_MAX
    if config.max_message_size > room:
        yield Problem(
            "maxMessageSize mappedFileSizeCommitLog",
            f"a record of maxMessageSize={config.max_message_size} cannot fit in a file of "
            f"mappedFileSizeCommitLog={config.mapped_file_size_commit_log}; at most {room} can",
        )


def _trace(config: BrokerConfig) -> Problems:
    topic = config.msg_trace_topic_name
    if config.trace_topic_enable and re.fullmatch(r"[%|\w-]{1,127}", topic, re.ASCII) is None:
        yield Problem(
            "msgTraceTopicName",
            f"msgTraceTopicName={topic} is no topic: it has 1 to 127 of the characters % | a-z A-Z 0-9 _ -; leave it "
            "out for RMQ_SYS_TRACE_TOPIC, which clients use unless they are told another",
        )


def _transfer(config: BrokerConfig) -> Problems:
    if config.ha_transfer_batch_size > config.ha_transfer_size_max:
        yield Problem("haTransferBatchSize haTransferSizeMax", "haTransferBatchSize must not exceed haTransferSizeMax")


def _disk(config: BrokerConfig) -> Problems:
    if config.disk_space_clean_forcibly_ratio > config.disk_space_warning_level_ratio:
        yield Problem(
            "diskSpaceCleanForciblyRatio diskSpaceWarningLevelRatio",
            "diskSpaceCleanForciblyRatio must not exceed diskSpaceWarningLevelRatio, "
            "or sends would be refused before space is made",
        )


def _addresses(config: BrokerConfig) -> Problems:
    """Nothing is guessed from the machine's interfaces: RocketMQ picks one, often the wrong one (#4140, #1057)."""
    told = config.broker_ip1
    if not is_ip(told) or ip_address(told).is_unspecified:
        yield Problem(
            "brokerIP1",
            f"brokerIP1={told} is told to clients and stored with every message, so it must be one IP address they "
            "can connect to; to listen on all of this machine's addresses set bindAddress=0.0.0.0 beside it",
        )
    elif "brokerIP1" not in config.origins and is_loopback(told) and not is_loopback(config.bind_address):
        yield Problem(
            "bindAddress",
            f"bindAddress={config.bind_address} listens beyond this machine, but clients would be told to connect to "
            f"{told}; set brokerIP1 to the address under which they reach this broker",
        )


def _ports(config: BrokerConfig) -> Problems:
    same_address = config.bind_address == config.ha_bind_address
    taken = {config.listen_port, config.listen_port - 2} if config.listen_port else set()
    if same_address and config.ha_listen_port in taken:
        yield Problem(
            "haListenPort listenPort",
            f"haListenPort={config.ha_listen_port} is taken by the client listeners "
            f"(listenPort={config.listen_port} and listenPort - 2)",
        )
    if config.listen_port in (1, 2) or config.ha_listen_port > 65535:
        yield Problem(
            "listenPort",
            f"listenPort={config.listen_port} leaves no room for listenPort - 2 and listenPort + 1",
        )


def _metrics(config: BrokerConfig) -> Problems:
    clients = {port: "listenPort" for port in (config.listen_port, config.listen_port - 2) if config.listen_port}
    slaves = {} if config.enable_dleger_commit_log else {config.ha_listen_port: "haListenPort"}
    return metrics_problems(config, taken=slaves | clients)


def _ha_tls(config: BrokerConfig) -> Problems:
    needed = (config.ha_tls_cert_path, config.ha_tls_key_path, config.ha_tls_trust_cert_path)
    if config.ha_tls_mode is not TlsMode.DISABLED and not all(needed):
        yield Problem(
            "haTlsMode",
            f"haTlsMode={config.ha_tls_mode} needs haTlsCertPath, haTlsKeyPath and haTlsTrustCertPath: both sides "
            "prove who they are",
        )


def _listeners(config: BrokerConfig) -> Problems:
    if config.allow_insecure:
        return
    listeners: list[tuple[str, TlsMode, tuple[str, ...]]] = [
        (config.bind_address, config.tls_mode, ("bindAddress", "brokerIP1"))
    ]
    if not config.enable_dleger_commit_log:
        listeners.append((config.ha_bind_address, config.ha_tls_mode, ("haBindAddress", "brokerIP2", "brokerIP1")))
    for address, mode, keys in listeners:
        if not is_loopback(address) and mode is not TlsMode.ENFORCING:
            decisive = next((key for key in keys if key in config.origins), keys[0])
            yield Problem(
                decisive,
                f"{decisive}={address} would listen beyond this machine, where anybody who reaches the port can "
                "read and write everything; set allowInsecure=true if the network is trusted, or listen on "
                "127.0.0.1, or set tlsMode=enforcing (for clients) and haTlsMode=enforcing (for brokers)",
            )
