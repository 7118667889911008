"""The door to the observability port: behind it are libraries that a broker without such a port never loads."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from rmqha.config import BrokerConfig
from rmqha.config.namesrv_config import NamesrvConfig
from rmqha.errors import ConfigError

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController
    from rmqha.namesrv.namesrv_controller import NamesrvController


def observe_broker(
    config: BrokerConfig,
) -> "Callable[[BrokerController], AbstractAsyncContextManager[object]] | None":
    """What has a broker observed while it runs; None if nobody asked for it.

    Raises:
        ConfigError: the libraries are missing.
    """
    if not config.metrics_listen:
        return None
    try:
        from rmqha.metrics.observed import open_broker_port  # noqa: PLC0415 - only this key pays for it
    except ImportError as error:
        raise _missing(error) from None
    return open_broker_port


def observe_name_server(
    config: NamesrvConfig,
) -> "Callable[[NamesrvController], AbstractAsyncContextManager[object]] | None":
    """As :func:`observe_broker`."""
    if not config.metrics_listen:
        return None
    try:
        from rmqha.metrics.observed import open_name_server_port  # noqa: PLC0415 - only this key pays for it
    except ImportError as error:
        raise _missing(error) from None
    return open_name_server_port


def _missing(error: ImportError) -> ConfigError:
    return ConfigError(f"metricsListen needs prometheus-client and h11 ({error}): pip install 'rmqha[web]'")
