"""Servers have a port for observation if they are told to, and only then."""

import pytest

from rmqha.config import load_config
from rmqha.config.load_namesrv import load_namesrv
from rmqha.metrics.start import observe_broker, observe_name_server

pytest.importorskip("h11", reason="h11 is in the extra [web]")
pytest.importorskip("prometheus_client", reason="prometheus-client is in the extra [web]")

ALLOWED = {"allowInsecure": "true"}


@pytest.mark.parametrize(
    ("settings", "is_observed"), [({}, False), ({"metricsListen": ""}, False), ({"metricsListen": "127.0.0.1:0"}, True)]
)
def test_only_the_key_opens_one(settings: dict[str, str], is_observed: bool) -> None:
    observers = (
        observe_broker(load_config(None, settings)),
        observe_name_server(load_namesrv(None, ALLOWED | settings)),
    )
    assert [one is not None for one in observers] == [is_observed, is_observed]
