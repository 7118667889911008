"""``rmqha doctor``: what other brokers and name servers say. They are asked, and nothing is changed."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from rmqha.choices import HaCatchUp
from rmqha.cli.ask import NoBrokerError, known_brokers, runtime_table
from rmqha.cli.doctor_account import check_account
from rmqha.cli.doctor_addresses import named_addresses
from rmqha.cli.doctor_clock import check_other_clock
from rmqha.cli.doctor_store import LogEnd, compare
from rmqha.cli.errors import CliError, SilentError
from rmqha.cli.finding import FAIL, OK, WARN, Finding, Level
from rmqha.cli.pages import Page
from rmqha.cli.store_place import other_store
from rmqha.cli.verdict import judge, read_status
from rmqha.codec.host import join_address
from rmqha.config import BrokerConfig, split_address, split_told_address
from rmqha.logs import escaped

Findings = Iterator[Finding]

_SLAVE: Final = "SLAVE"
_NO_FACTS: Final = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What comes of reading facts that are none."""
_REFUSED: Final = "Connection refused"


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


def check_peers(config: BrokerConfig, log: LogEnd | None = None, *, is_empty: bool, timeout_s: float) -> Findings:
    """The other brokers of the group that the configuration names.

    Args:
        config: of a broker.
        log: what it has, if it does not run.
        is_empty: it has no log, and does not run: with its start a new one begins.
        timeout_s: for each answer.
    """
    if config.enable_dleger_commit_log:
        return
    away, answering = list[str](), dict[str, str]()
    for key, address in named_addresses(config):
        if key == "namesrvAddr":
            continue
        try:
            facts = read_status(_asked(key, address, timeout_s=timeout_s))
            problems, held, name = list(_clashes(config, key, facts)), _held(facts), _named(facts)
        except _WrongPortError as error:
            yield Finding(FAIL, key, escaped(f"{address}: {error.what}"), error.told)
            continue
        except CliError as error:
            away.append(address)
            told = "is it running? Its listenPort is taken to be the one below its HA port"
            told = error.hint if error.is_broker else told
            yield Finding(WARN, key, escaped(f"{address}: {error.message}: {error.why}"), told)
            if error.is_broker:
                answering[_listen_address(key, address)] = key
            continue
        except _NO_FACTS as error:
            yield Finding(WARN, key, f"{address}: its status cannot be read: {type(error).__name__}")
            continue
        for what, told in problems:
            yield Finding(FAIL, key, escaped(f"{address}: {what}"), told)
        yield from _other_cluster(config, key, address, facts)
        yield from check_other_clock(key, address, facts)
        if not problems:
            yield Finding(OK, key, escaped(f"{address}: {name}"))
            answering[_listen_address(key, address)] = key
        if log is not None and held is not None and key != "masterAddress":
            yield from compare(config, log, (key, address), _below(address), held, timeout_s=timeout_s)
    for address, key in answering.items():
        yield from check_account(config, key, address, timeout_s=timeout_s)
    if is_empty and away and not config.is_slave and config.ha_catch_up_at_start is not HaCatchUp.REQUIRE:
        what = (
            f"the log here is empty, and what {', '.join(away)} may hold is unknown: a start now takes sends in the "
            "places of messages that were lost with this store"
        )
        told = "start them first, or set haCatchUpAtStart=require; of a new group nothing was lost"
        yield Finding(WARN, "haPeers", what, told)


def _held(facts: dict[str, Any]) -> LogEnd | None:
    """Which log a broker says it has; None: none, or it does not say."""
    min_offset, max_offset = facts.get("min_offset"), facts.get("max_offset")
    if not isinstance(min_offset, int) or not isinstance(max_offset, int) or max_offset <= 0:
        return None
    return LogEnd("", min_offset, max_offset)


class _WrongPortError(Exception):
    """``what`` is wrong with an address, and ``told`` what to do."""

    def __init__(self, what: str, told: str) -> None:
        super().__init__(what)
        self.what = what
        self.told = told


def _asked(key: str, address: str, *, timeout_s: float) -> dict[str, str]:
    """What the broker behind an address says; of an HA port the one that listens below it.

    Raises:
        _WrongPortError: the address is one of the broker's other ports, or a name server's.
        CliError: nobody answers who could tell.
    """
    is_ha = key != "masterAddress"
    try:
        return runtime_table(_listen_address(key, address), timeout_s=timeout_s)
    except NoBrokerError as error:
        if not is_ha:
            raise _WrongPortError("it is a name server", "name the master's listenPort") from error
        unheard: CliError = error
    except CliError as error:
        if error.is_broker:  # its other port would take this for a replica that it has to turn away, and tell of it
            raise
        unheard = error
    try:
        there = runtime_table(address if is_ha else _below(address), timeout_s=timeout_s)
        facts = read_status(there)
        ha_port = (facts.get("ha") or {}).get("port", 0)
    except NoBrokerError as error:
        if is_ha:
            raise _WrongPortError("it is a name server, and no HA port", "name the replica's HA port") from error
        raise unheard from None
    except (CliError, *_NO_FACTS):
        raise unheard from None
    if is_ha:
        found = f"port {ha_port}" if ha_port else "listenPort + 1, unless it has a haListenPort"
        what = f"it answers as a broker's listenPort ({_named(facts)}), and is no HA port"
        raise _WrongPortError(what, f"name its HA port: {found}")
    if ha_port == split_told_address(address)[1]:
        what = f"it is the HA port of {_named(facts)}"
        raise _WrongPortError(what, f"name its listenPort: {_below(address)}")
    raise unheard


def _listen_address(key: str, address: str) -> str:
    """Where the broker that ``key`` leads to answers clients, as far as can be told."""
    return address if key == "masterAddress" else _below(address)


def _below(address: str) -> str:
    host, port = split_told_address(address)
    return join_address(host, port - 1)


def _named(facts: dict[str, Any]) -> str:
    return f"{facts.get('role', facts['version'])} {facts.get('broker_name', '')}".strip()


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


def _other_cluster(config: BrokerConfig, key: str, address: str, facts: dict[str, Any]) -> Findings:
    """A broker of this group that has another cluster's name."""
    cluster, own = facts.get("broker_cluster_name"), config.broker_cluster_name
    if cluster not in (None, own) and facts.get("broker_name") == config.broker_name:
        what = f"{address}: its brokerClusterName is {cluster}, not {own}: a failover would change it for clients"
        yield Finding(WARN, key, escaped(what), "set the same brokerClusterName on both")


def check_name_servers(config: BrokerConfig, *, timeout_s: float) -> Findings:
    """Whether they answer, and whether another broker is registered in this one's place."""
    for address in config.namesrv_addr:
        try:
            broker = read_status(runtime_table(address, timeout_s=timeout_s))
        except NoBrokerError:
            pass
        except CliError as error:
            yield _silent_name_server(address, error)
            continue
        except _NO_FACTS:
            broker = {"version": "a broker"}
        else:
            if broker.get("broker_name") != config.broker_name:
                what = f"{address}: it answers as a broker's listenPort ({_named(broker)}), and is no name server"
                told = "name a name server (port 9876 by default): a broker is one for brokers of its own name alone"
                yield Finding(FAIL, "namesrvAddr", escaped(what), told)
                continue
        yield _registration(config, address, timeout_s=timeout_s)


def _silent_name_server(address: str, error: CliError) -> Finding:
    told = "is it running, and is this its address?"
    if getattr(error, "is_broker", False):  # TLS with it fails, or it takes TLS alone
        told = "namesrvTlsEnable has to be as the name server has it (the default is true with tlsMode=enforcing)"
    message = error.message.replace("the broker at", "the name server at")
    return Finding(WARN, "namesrvAddr", escaped(f"{address}: {message}: {error.why}"), told)


def _registration(config: BrokerConfig, address: str, *, timeout_s: float) -> Finding:
    """What a name server knows of this broker's place."""
    try:
        known = known_brokers(address, timeout_s=timeout_s).get(config.broker_name)
    except CliError as error:
        return _silent_name_server(address, error)
    own = join_address(config.broker_ip1, config.listen_port)
    broker_id = 0 if config.enable_dleger_commit_log else config.broker_id
    other = known.broker_addrs.get(broker_id) if known is not None else None
    named = f"{config.broker_name} with brokerId {broker_id}"
    if known is not None and known.cluster != config.broker_cluster_name:
        told = "give one of them another brokerName, or both the same brokerClusterName"
        what = f"{address} knows {config.broker_name} in cluster {known.cluster}, not {config.broker_cluster_name}"
        return Finding(FAIL, "namesrvAddr", escaped(what), told)
    if other not in (None, own) and not config.enable_dleger_commit_log:
        told = "give one of them another brokerName (or brokerId, if it is a slave), or stop the other one"
        return Finding(FAIL, "namesrvAddr", escaped(f"{address} knows {named} at {other}, not at {own}"), told)
    return Finding(OK, "namesrvAddr", f"{address}: {named} is {'registered' if other else 'free'}")


def own_listen_address(config: BrokerConfig) -> str:
    """Where the broker of this configuration answers on this machine."""
    host = "127.0.0.1" if config.bind_address in ("0.0.0.0", "::") else config.bind_address  # noqa: S104 - not bound
    return join_address(host, config.listen_port)


def check_own(config: BrokerConfig, *, timeout_s: float) -> Findings:
    """What the broker of this configuration, which runs, says of itself."""
    address = own_listen_address(config)
    try:
        facts = read_status(runtime_table(address, timeout_s=timeout_s))
        verdict, unnamed, wrong = judge(facts), _unnamed(config, facts), other_store(config, facts)
    except SilentError as error:
        told = "is its process stopped, or its disk stuck? Look at its log's last line; then restart it"
        yield Finding(FAIL, "status", escaped(f"it runs, and does not answer at {address}: {error.why}"), told)
        return
    except CliError as error:
        if _REFUSED in error.why:
            what = f"a broker runs on this store (it holds the lock), and none listens at {address}"
            yield Finding(
                FAIL, "status", what, "does it stop just now, or is this file a copy of its? A start is refused"
            )
            return
        yield Finding(WARN, "status", escaped(f"{error.message}: {error.why}"), "'rmqha status -b' asks it as well")
        return
    except _NO_FACTS as error:
        yield Finding(WARN, "status", f"{address}: its status cannot be read: {type(error).__name__}")
        return
    if wrong:
        yield _with_other_store(config, facts, wrong)
        return
    levels: dict[str, Level] = {"ok": OK, "degraded": WARN}
    level = levels.get(verdict.level, FAIL)
    yield Finding(level, "status", escaped("; ".join([f"{verdict.level}: {verdict.summary}", *verdict.reasons])))
    yield from unnamed
    yield from _next_start(config, verdict.reasons)


def _next_start(config: BrokerConfig, reasons: Sequence[str]) -> Findings:
    """Of a master that serves beside a slave that holds other bytes: by its next start it asks that one."""
    apart = [reason for reason in reasons if Page.DIVERGED in reason]
    is_asking = config.ha_peers and config.ha_catch_up_at_start is not HaCatchUp.OFF
    if not apart or config.is_slave or config.enable_dleger_commit_log or not is_asking:
        return
    peers = [split_address(peer) for peer in config.ha_peers]
    beside = [f"{host}:{port - 1} " for host, port in peers]
    level: Level = FAIL if any(reason.startswith(tuple(beside)) for reason in apart) else WARN
    what = "while haPeers names a slave whose log differs from its own the next start of this master fails"
    told = f"before this one is stopped find out which log is right, and have the other begin empty: {Page.DIVERGED}"
    yield Finding(level, "haPeers", what, told)


def find_tenant(config: BrokerConfig, *, timeout_s: float) -> Finding | None:
    """A broker that listens where this one will, while the store that the file names is not locked."""
    if config.listen_port == 0:
        return None
    try:
        facts = read_status(runtime_table(own_listen_address(config), timeout_s=timeout_s))
        if wrong := other_store(config, facts):
            return _with_other_store(config, facts, wrong)
        return _whose_store_is_gone(config, facts) if "store" in facts else None
    except (CliError, *_NO_FACTS):
        return None


def _whose_store_is_gone(config: BrokerConfig, facts: dict[str, Any]) -> Finding | None:
    """It uses this store, as it says, and its lock is not there: no port of its is to be freed, and no id changed."""
    lock = Path(config.store_path_root_dir) / "lock"
    if not _may_read(lock):
        return None  # who may not read it does not know
    what = (
        f"the broker that runs here, at {own_listen_address(config)} ({_named(facts)}, brokerId "
        f"{facts.get('broker_id')}), says that this is its store, and {lock} is not locked: the directory was removed, "
        f"moved, replaced or unmounted under it. It says: {'; '.join(judge(facts).reasons) or 'nothing is wrong'}"
    )
    told = f"start nothing else here: bring the directory back, then restart that broker; see {Page.WRITE_FAILED}"
    return Finding(FAIL, "store", escaped(what), told)


def _may_read(path: Path) -> bool:
    """Whether this user may, if it is there."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return os.access(path, os.R_OK)


def _with_other_store(config: BrokerConfig, facts: dict[str, Any], wrong: str) -> Finding:
    what = (
        f"the broker that runs here, at {own_listen_address(config)} ({_named(facts)}, brokerId "
        f"{facts.get('broker_id')}), has another store than this file names: {wrong}"
    )
    told = (
        "correct the file, if it is this broker's: a start by it would go on with what the file's store holds; else "
        "give this one a listenPort of its own"
    )
    return Finding(FAIL, "store", escaped(what), told)


def _unnamed(config: BrokerConfig, facts: dict[str, Any]) -> list[Finding]:
    """Of more slaves than haPeers names one at least is never asked what this master may have lost."""
    live, named = (facts.get("ha") or {}).get("live_slaves", 0), len(config.ha_peers)
    if config.is_slave or config.enable_dleger_commit_log or not 0 < named < live:
        return []
    what = f"{live} slaves follow, and it names {named}: what the others alone have acknowledged nobody would ask for"
    return [Finding(WARN, "haPeers", what, "name the HA port of each replica, and restart this master")]
