"""NamesrvController: one name server. Wires, starts and stops its parts."""

from pathlib import PurePath
from typing import Final

import structlog
import trio

from rmqha.certificates import TlsOptions
from rmqha.codec.host import join_address
from rmqha.config.java_properties import format_property
from rmqha.config.load_namesrv import NAMESRV_KEYS
from rmqha.config.namesrv_config import NamesrvConfig
from rmqha.config.same_settings import same_settings
from rmqha.listening import listening_by
from rmqha.namesrv.kv_config_manager import KVConfigManager
from rmqha.namesrv.name_service import NameService
from rmqha.namesrv.route_info_manager import RouteInfoManager
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.limits import UNSENT_BYTES_MAX, RemotingLimits
from rmqha.remoting.server import RemotingServer
from rmqha.store.config_files import ConfigFiles
from rmqha.store.disk import Disk
from rmqha.tls import secured
from rmqha.transport import Network

logger = structlog.get_logger()

_RECEIVE_SIZE: Final = 256 * 1024


class NamesrvController:
    """One object, one life.

    Attributes:
        config: the operator's decisions.
        routes: the brokers that have registered.
        server: serves brokers and clients; None before it listens.
        address: where it listens; the port is the bound one once :meth:`run` has started.
    """

    def __init__(self, config: NamesrvConfig, *, disk: Disk, network: Network) -> None:
        """Nothing is opened yet.

        Args:
            config: the operator's decisions.
            disk: the door to files.
            network: the door to brokers and clients.

        Raises:
            ConfigError: a certificate or key cannot be used.
        """
        self.config: Final = config
        self._network: Final = secured(network, tls_options(config), config.tls_mode)
        path = PurePath(config.kv_config_path)
        self._kv_config: Final = KVConfigManager(ConfigFiles(disk, str(path.parent)), path.name)
        self.routes: Final = RouteInfoManager()
        self._service: Final = NameService(
            self.routes,
            self._kv_config,
            order_message_enable=config.order_message_enable,
            properties=self._properties,
        )
        self._stopping: Final = trio.Event()
        self.address = join_address(config.bind_address, config.listen_port)
        self.server: RemotingServer | None = None

    @property
    def is_stopping(self) -> bool:
        """Whether :meth:`stop` was called."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Begin the shutdown; :meth:`run` returns when all is answered."""
        self._stopping.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until :meth:`stop`; reports when it does.

        Raises:
            OSError: the address cannot be bound.
            StoreReadError: what operators keep here may not be read.
        """
        config, dispatcher = self.config, RequestDispatcher()
        self._kv_config.load()
        self._service.register(dispatcher)
        server = RemotingServer(dispatcher, limits=same_settings(RemotingLimits, config, receive_size=_RECEIVE_SIZE))
        async with trio.open_nursery() as nursery:
            with listening_by("listenPort", "bindAddress"):
                listener = await self._network.listen(
                    config.bind_address, config.listen_port, unsent_bytes_max=UNSENT_BYTES_MAX
                )
            self.address = join_address(config.bind_address, listener.port)
            nursery.start_soon(server.serve, listener)
            nursery.start_soon(self._service.run)
            logger.info("namesrv.started", address=self.address, kv_config=config.kv_config_path)
            self.server = server
            task_status.started()
            await self._stopping.wait()
            await server.close(grace_s=config.drain_timeout_s)
            nursery.cancel_scope.cancel()
        logger.info("namesrv.stopped")

    def _properties(self) -> str:
        """The keys that RocketMQ knows."""
        keys = [key for key in NAMESRV_KEYS.values() if not key.ours]
        shown = [format_property(key.name, key.kind.show(getattr(self.config, key.attribute))) for key in keys]
        return "".join(f"{line}\n" for line in shown)


def tls_options(config: NamesrvConfig) -> TlsOptions:
    """TLS on a name server's ports."""
    return TlsOptions(
        cert=config.tls_cert_path,
        key=config.tls_key_path,
        trust=config.tls_trust_cert_path,
        peer_names=config.tls_peer_names,
        require_peer_cert=config.tls_need_client_auth,
    )
