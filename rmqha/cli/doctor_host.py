"""``rmqha doctor``: what the machine grants a broker. Nothing is changed."""

import ctypes
import errno
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from rmqha import process
from rmqha.broker.main import max_map_count, share_descriptors
from rmqha.certificates import validity
from rmqha.cli.broker_conf import certificate_problems
from rmqha.cli.finding import FAIL, OK, WARN, Finding
from rmqha.cli.pages import Page
from rmqha.cli.span import span
from rmqha.cli.status_text import human_bytes
from rmqha.config import BrokerConfig
from rmqha.config.kinds import split_listen_address
from rmqha.errors import ConfigError, StoreError
from rmqha.metrics.start import observe_broker
from rmqha.store.disk import DiskUsage
from rmqha.store.os_disk import OsDisk

Findings = Iterator[Finding]

_TMPFILE: Final[int] = getattr(os, "O_TMPFILE", 0o20000000 | os.O_DIRECTORY)
"""PyPy does not name it."""
_FILES_WANTED: Final = 4096
"""Of the store, open at a time: more would bring little."""
_MAPS_WANTED: Final = 65_530
_SEGMENTS_WANTED: Final = 3
_INODES_WANTED: Final = 1000
_CERTIFICATE_DAYS: Final = 30
_FUTURE_S: Final = 5.0
_TIME_ERROR: Final = 5
"""adjtimex: the clock is not synchronized."""
_TIMEX_SIZE: Final = 512
"""More than struct timex takes."""
_FAST_PORT_DISTANCE: Final = 2
"""RocketMQ's clients and slaves use that port, too."""
_LIBRARIES: Final = ("rmqha", "trio", "click", "structlog")
_EXTRAS: Final = {
    "isal": "CRCs take longer: pip install 'rmqha[fast]'",
    "lz4": "bodies that producers compressed by LZ4 are not read by commands: pip install 'rmqha[compression]'",
    "zstandard": "bodies that producers compressed by zstd are not read by commands: pip install 'rmqha[compression]'",
}


def check_limits(config: BrokerConfig, *, pid: int = 0, files_max: int | None = None) -> Findings:
    """How many files, connections and maps there may be.

    Args:
        config: of the broker.
        pid: the process of the broker, which runs.
        files_max: that process's limit; None: it is not known, and that of this process is told.
    """
    if files_max is None:
        hard, whose = process.raise_files_limit(), "by the limit of this process: a unit has one of its own"
    else:
        hard, whose = files_max, f"by the limit of the broker that runs, process {pid}"
    lowered, open_files = share_descriptors(config, hard)
    shown = "any number of" if hard is None else f"{hard:,}"
    what = f"{shown} open files and connections, {whose}; of the store {open_files:,} files at a time"
    told = "raise ulimit -Hn here, LimitNOFILE= of a systemd unit: 65536 or more"
    if lowered.max_connections < config.max_connections:
        fewer = f", so {lowered.max_connections:,} of maxConnections={config.max_connections:,} are taken"
        yield Finding(WARN, "files", what + fewer, told)
    elif open_files < _FILES_WANTED:
        yield Finding(WARN, "files", what, told)
    else:
        yield Finding(OK, "files", what)
    maps = max_map_count()
    few = maps < _MAPS_WANTED
    yield Finding(WARN if few else OK, "maps", f"{maps:,} maps", "sysctl vm.max_map_count=262144" if few else "")


def check_clock(log_directory: str) -> Findings:
    """Whether the clock is kept right, and is not behind what was written."""
    if _is_synchronized() is False:
        told = "run chrony, ntpd or systemd-timesyncd: store times, delays and retention follow the clock"
        yield Finding(WARN, "clock", "it is not synchronized, says the kernel", told)
    else:
        yield Finding(OK, "clock", time.strftime("%Y-%m-%d %H:%M:%S %z"))
    ahead_s = _newest_write_s(log_directory) - time.time()
    if ahead_s > _FUTURE_S:
        told = "set the clock right before the broker is started"
        yield Finding(FAIL, "clock", f"it is {ahead_s:,.0f} s behind the last write of the log", told)


def _is_synchronized() -> bool | None:
    """None: the kernel does not tell."""
    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_SIZE))
    except (AttributeError, OSError):
        return None
    return None if state < 0 else state != _TIME_ERROR


def _newest_write_s(log_directory: str) -> float:
    try:
        return max((path.stat().st_mtime for path in Path(log_directory).iterdir()), default=0.0)
    except OSError:
        return 0.0


def is_empty(config: BrokerConfig) -> bool:
    """Whether there is no log yet, or none any more."""
    return _newest_write_s(config.store_path_commit_log) == 0.0


def check_disk(config: BrokerConfig) -> Findings:
    """Room where the log is, and for all the rest if that has a file system of its own."""
    log, root = _existing(config.store_path_commit_log), _existing(config.store_path_root_dir)
    is_apart = log.stat().st_dev != root.stat().st_dev
    for at in (log, root) if is_apart else (log,):
        try:
            usage = OsDisk().usage(str(at))
        except StoreError as error:
            yield Finding(FAIL, "disk", str(error))
            continue
        yield from _check_room(config, at, usage) if at is log else _check_more_room(config, at, usage)
        yield from _check_inodes(at, usage)


def _check_inodes(at: Path, usage: DiskUsage) -> Findings:
    """Whether files can be made, which free bytes do not tell; without any of these some count no inodes either."""
    if usage.free_inodes is None or usage.available == usage.free_inodes == 0:
        return
    told = f"'df -i {at}'; remove files that nobody needs: {Page.NO_INODES}"
    if usage.free_inodes == 0:
        yield Finding(FAIL, "inodes", f"{at}: none is free, so no file can be made, though bytes may be free", told)
    elif usage.free_inodes < _INODES_WANTED:
        yield Finding(WARN, "inodes", f"{at}: {usage.free_inodes:,} free, and each file takes one", told)
    else:
        yield Finding(OK, "inodes", f"{at}: {usage.free_inodes:,} free")


def _check_more_room(config: BrokerConfig, at: Path, usage: DiskUsage) -> Findings:
    """Where consume queues, index and tables are: it is as full as the log's may be, but no deleted segment helps."""
    what = f"{at}: {human_bytes(usage.available)} free, {usage.used_percent} % used"
    if usage.read_only:
        yield Finding(FAIL, "disk", f"{at} is read-only", "mount it for writing")
    elif usage.used_percent > config.disk_space_warning_level_ratio:
        refused = f": diskSpaceWarningLevelRatio={config.disk_space_warning_level_ratio} refuses sends"
        yield Finding(FAIL, "disk", what + refused, "make room")
    else:
        yield Finding(OK, "disk", what)


def _check_room(config: BrokerConfig, at: Path, usage: DiskUsage) -> Findings:
    what = f"{at}: {human_bytes(usage.available)} free, {usage.used_percent} % used"
    segment = config.mapped_file_size_commit_log
    is_crowded = config.clean_file_forcibly_enable and usage.used_percent > config.disk_space_clean_forcibly_ratio
    if is_crowded:
        ratio = f"diskSpaceCleanForciblyRatio={config.disk_space_clean_forcibly_ratio}"
        lost = f": above {ratio} unexpired files are deleted"
        yield Finding(FAIL, "disk", what + lost, "make room, or keep messages for less time (fileReservedTime)")
    if usage.read_only:
        yield Finding(FAIL, "disk", f"{at} is read-only", "mount it for writing")
    elif usage.used_percent > config.disk_space_warning_level_ratio:
        refused = f": diskSpaceWarningLevelRatio={config.disk_space_warning_level_ratio} refuses sends"
        yield Finding(FAIL, "disk", what + refused, "make room")
    elif usage.available < _SEGMENTS_WANTED * segment:
        few = f", less than {_SEGMENTS_WANTED} segments of mappedFileSizeCommitLog={segment}"
        yield Finding(FAIL, "disk", what + few, "make room, or set smaller segments for a new store")
    elif is_crowded:
        return
    elif usage.used_percent > config.disk_max_used_space_ratio:
        early = f": above diskMaxUsedSpaceRatio={config.disk_max_used_space_ratio} expired files go at any hour"
        yield Finding(WARN, "disk", what + early, "make room, or keep messages for less time (fileReservedTime)")
    else:
        yield Finding(OK, "disk", what)


def check_store(config: BrokerConfig, *, is_running: bool) -> Findings:
    """Whether this user may use the directories of the store; ``is_running``: its broker does already."""
    for path in dict.fromkeys((config.store_path_root_dir, config.store_path_commit_log)):
        at = _existing(path)
        if not at.is_dir():
            yield Finding(FAIL, "store", f"{at} is no directory", "name another storePathRootDir, or remove it")
        elif not os.access(at, os.R_OK | os.W_OK | os.X_OK):
            yield Finding(FAIL, "store", f"{at} cannot be read and written", _how_to_open(at))
        elif stranger := _not_ours(at if at == Path(path) else None):
            yield Finding(FAIL, "store", f"{stranger} cannot be read and written", _how_to_open(stranger))
        elif why := _why_no_file(at):
            yield Finding(FAIL, "store", why, f"repair the disk ('dmesg' says what it met): {Page.WRITE_FAILED}")
        elif not is_running and at == Path(path) and (why := _why_locked(path, config)):
            yield Finding(FAIL, "store", why, "stop that broker, or name a directory of its own: a start is refused")
        else:
            use = "in use by its broker, which runs" if is_running else "there" if at == Path(path) else "can be made"
            yield Finding(OK, "store", f"{path}: {use}")


def _how_to_open(path: Path) -> str:
    """What lets this user read and write."""
    if OsDisk().usage(str(path)).read_only:
        return "mount it for writing: as it is mounted nobody writes there"
    owner, user = path.stat().st_uid, os.geteuid()
    if owner == user:
        return f"chmod -R u+rwX {path}: its owner is this user (uid {user}), and its mode or an ACL forbids it"
    return f"chown -R it to the user that runs the broker (this is uid {user}), or run as its owner (uid {owner})"


def _why_no_file(directory: Path) -> str:
    """Why no file can be made there, by one that has no name and is gone at once; empty if one can.

    A file system that made itself read-only after an error need not say so by its mount's flags.
    """
    try:
        os.close(os.open(directory, _TMPFILE | os.O_WRONLY, 0o600))
    except OSError as error:
        is_refused = error.errno in {errno.EROFS, errno.EIO, errno.ESTALE, errno.ESHUTDOWN}
        return f"no file can be made in {directory}: {error.strerror}" if is_refused else ""
    return ""


def _why_locked(path: str, config: BrokerConfig) -> str:
    """Who has the directory of the log, as a start finds out; empty if nobody has."""
    if path != config.store_path_commit_log:
        return ""
    try:
        OsDisk().lock_directory(path).close()
    except StoreError as error:
        return str(error)
    return ""


def _existing(path: str) -> Path:
    """The path, or the nearest above it that is there."""
    found = Path(path).absolute()
    while not os.path.exists(found) and found != found.parent:  # noqa: PTH110 - Path's raises where it may not look
        found = found.parent
    return found


def _not_ours(directory: Path | None) -> Path | None:
    """A file of the directory that this user may not use."""
    for path in sorted(directory.iterdir()) if directory is not None else ():
        if not os.access(path, os.R_OK | os.W_OK):
            return path
    return None


def check_ports(config: BrokerConfig, *, is_running: bool) -> Findings:
    """Whether they are free, or taken by the broker of this store, which runs."""
    ports = [("listenPort", config.bind_address, config.listen_port)]
    if config.listen_port > _FAST_PORT_DISTANCE:
        fast = config.listen_port - _FAST_PORT_DISTANCE
        ports.append((f"listenPort - {_FAST_PORT_DISTANCE}", config.bind_address, fast))
    if not config.enable_dleger_commit_log:
        ports.append(("haListenPort", config.ha_bind_address, config.ha_listen_port))
    if config.metrics_listen:
        ports.append(("metricsListen", *split_listen_address(config.metrics_listen)))
    for key, host, port in ports:
        if port == 0:
            continue
        problem = "" if is_running else _why_not_free(host, port)
        told = "stop what listens there ('ss -tanp' says what), or set another port"
        used = ": taken by the broker, which runs" if is_running else ""
        what = f"{key} {host}:{port}"
        yield Finding(FAIL, "ports", f"{what}: {problem}", told) if problem else Finding(OK, "ports", what + used)


def _why_not_free(host: str, port: int) -> str:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return "is taken"
        if error.errno == errno.EADDRNOTAVAIL:
            return "is no address of this machine"
        return error.strerror or str(error)
    return ""


def check_certificates(config: BrokerConfig) -> Findings:
    """Whether TLS can be begun with its files, and how long what it shows is valid."""
    for problem in certificate_problems(config):
        yield Finding(FAIL, "certificates", problem, f"without it the broker does not start: {Page.CERTIFICATES}")
    for path in sorted({config.tls_cert_path, config.ha_tls_cert_path} - {""}):
        if (valid := validity(path)) is None:
            continue
        now_s = time.time()
        if valid.begins_s > now_s:
            told = f"{path} is valid in {span(valid.begins_s - now_s)} only"
            yield Finding(
                FAIL, "certificates", told, f"is this clock right, and that of who made it? {Page.CERTIFICATES}"
            )
        days = (valid.ends_s - now_s) / 86_400
        told = f"{path} ends in {days:.0f} days" if days > 0 else f"{path} ended {-days:.0f} days ago"
        if days >= _CERTIFICATE_DAYS:
            yield Finding(OK, "certificates", told)
        else:
            yield Finding(FAIL if days <= 0 else WARN, "certificates", told, f"renew it: {Page.CERTIFICATES}")


def check_software(config: BrokerConfig) -> Findings:
    """Versions, and extras that would serve."""
    libraries = ", ".join(f"{name} {_version(name)}" for name in _LIBRARIES)
    python = f"{sys.implementation.name} {sys.version.split()[0]}"
    yield Finding(OK, "software", f"{libraries}, {python} at {sys.executable}")
    for name, otherwise in _EXTRAS.items():
        if not _version(name):
            yield Finding(OK, "software", f"without {name}: {otherwise}")
    if config.acl_enable and not _version("PyYAML"):
        yield Finding(FAIL, "software", "aclEnable needs PyYAML", "pip install 'rmqha[acl]'")
    try:
        observe_broker(config)
    except ConfigError as error:
        yield Finding(FAIL, "software", f"a start with this file ends: {error}", "pip install 'rmqha[web]'")
    if shutil.which("rmqha") is None:
        yield Finding(WARN, "software", "the command rmqha is not on the PATH", "a unit has to name its whole path")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
