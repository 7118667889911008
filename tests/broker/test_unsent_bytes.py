"""For a client that takes nothing the kernel keeps little: each port to which clients come asks it to."""

import pytest
from trio.testing import MockClock

from tests.broker.machines import Machine
from tests.namesrv.machines import PORT, NameServerMachine
from tests.sim.sim_net import SimNet

pytest.importorskip("h11", reason="h11 is in the extra [web]")
pytest.importorskip("prometheus_client", reason="prometheus-client is in the extra [web]")

from rmqha.metrics.observed import open_broker_port

LITTLE = 1 << 20


def kept(net: SimNet, *ports: tuple[str, int]) -> list[bool]:
    """Whether little is, for the clients of each port."""
    return [0 < (net.listeners[port].unsent_bytes_max or 0) <= LITTLE for port in ports]


async def test_the_ports_of_a_broker_and_of_a_name_server(autojump_clock: MockClock) -> None:
    """There may be a thousand, and hundreds of kilobytes for each of them are a small machine's memory."""
    net = SimNet()
    host, web, names = "10.0.0.1", "10.8.8.1", NameServerMachine(net)
    machine = Machine(net, host, {"metricsListen": f"{web}:9100"})
    async with names.running(), machine.broker() as broker, open_broker_port(broker, network=net.host(web).mount()):
        ports = [(host, 10911), (host, 10909), (web, 9100), (names.address, PORT)]
        assert kept(net, *ports) == [True] * len(ports)
