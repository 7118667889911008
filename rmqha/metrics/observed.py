"""Opens the observability port of a broker, or of a name server, where its configuration says."""

from contextlib import AbstractAsyncContextManager

from rmqha.broker import options
from rmqha.broker.broker_controller import BrokerController
from rmqha.metrics.port import MetricsPort, open_port
from rmqha.metrics.watched_broker import WatchedBroker
from rmqha.metrics.watched_name_server import WatchedNameServer
from rmqha.namesrv.namesrv_controller import NamesrvController, tls_options
from rmqha.process import tell_lacking
from rmqha.tls import secured
from rmqha.transport import Network, TcpNetwork


def open_broker_port(broker: BrokerController, *, network: Network | None = None) -> AbstractAsyncContextManager[str]:
    """Tell of ``broker`` while the block runs. Raises ConfigError: a certificate or key cannot be used."""
    config = broker.config
    port = MetricsPort(lambda server: WatchedBroker(broker, server), allow=config.metrics_allow)
    secure = secured(network or TcpNetwork(tell_lacking=tell_lacking), *options.client_tls(config))
    return open_port(port, secure, listen=config.metrics_listen)


def open_name_server_port(
    name_server: NamesrvController, *, network: Network | None = None
) -> AbstractAsyncContextManager[str]:
    """As :func:`open_broker_port`."""
    config = name_server.config
    port = MetricsPort(lambda server: WatchedNameServer(name_server, server), allow=config.metrics_allow)
    secure = secured(network or TcpNetwork(tell_lacking=tell_lacking), tls_options(config), config.tls_mode)
    return open_port(port, secure, listen=config.metrics_listen)
