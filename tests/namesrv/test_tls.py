"""A name server that requires TLS: brokers register by the files of their TLS section, others are not heard."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from rmqha.certificates import TlsOptions
from rmqha.codec.codes import RequestCode
from rmqha.config import load_config
from rmqha.errors import RemotingError
from tests.broker.machines import Machine
from tests.namesrv.machines import NameServerMachine, ask
from tests.sim.sim_net import SimNet
from tests.test_tls import Pki


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


def tls_keys(options: TlsOptions, **others: str) -> dict[str, str]:
    return {
        "tlsCertPath": str(options.cert),
        "tlsKeyPath": str(options.key),
        "tlsTrustCertPath": str(options.trust),
        **others,
    }


async def test_brokers_register_by_tls(pki: Pki, autojump_clock: MockClock) -> None:
    net = SimNet()
    names = NameServerMachine(net, settings=tls_keys(pki.options("10.7.7.7"), tlsMode="enforcing"))
    of_broker = tls_keys(pki.options("10.0.0.1"), namesrvTlsEnable="true", namesrvAddr=names.where)
    broker = Machine(net, "10.0.0.1", of_broker)
    plain = Machine(net, "10.0.0.2", {"namesrvAddr": names.where, "brokerName": "plain"})
    async with names.running() as server, broker.broker(), plain.broker():
        await trio.sleep(20)
        assert [group.data.broker_addrs for group in server.routes.groups()] == [{0: "10.0.0.1:10911"}]
        async with names.client() as client:
            with pytest.raises(RemotingError):
                await ask(client, RequestCode.GET_BROKER_CLUSTER_INFO)


def test_a_broker_that_requires_tls_speaks_it_with_name_servers(pki: Pki) -> None:
    keys = tls_keys(pki.options("10.0.0.1"), tlsMode="enforcing")
    assert load_config(None, keys).namesrv_tls_enable
    assert not load_config(None, keys | {"namesrvTlsEnable": "false"}).namesrv_tls_enable
    assert not load_config(None, keys | {"tlsMode": "permissive"}).namesrv_tls_enable
