"""Brokers with accounts ask each other: they sign, or come from a white address."""

from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from rmqha.cli.pages import Page, page_of_trouble
from rmqha.client import Message, MQBrokerError, open_producer
from rmqha.codec.acl import SessionCredentials
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.transfer import encode_report
from rmqha.errors import ConfigError
from rmqha.remoting.client import open_remoting_client
from tests.broker.acl.files import account, home_with
from tests.broker.dledger_brokers import BrokerGroup
from tests.broker.machines import Machine, ask, replication_of, send_request
from tests.sim.sim_clock import WallClock
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_net import SimNet

ACCOUNTS = "accounts:\n" + account("producer", "defaultTopicPerm: PUB") + account("brokers")
PRODUCER = SessionCredentials("producer", "12345678")


def a_pair(tmp_path: Path, *, accounts: str = ACCOUNTS, **of_slave: str) -> tuple[Machine, Machine]:
    home = home_with(tmp_path, accounts)
    net, keys = SimNet(), {"aclEnable": "true", "rocketmqHome": home}
    master = Machine(net, "10.0.0.1", keys | {"brokerRole": "SYNC_MASTER"})
    asks = {"brokerRole": "SLAVE", "haMasterAddress": "10.0.0.1:10912", "masterAddress": "10.0.0.1:10911"}
    return master, Machine(net, "10.0.0.2", keys | asks | of_slave)


def credentials_file(tmp_path: Path, text: str = "accessKey: brokers\nsecretKey: 12345678\n") -> str:
    path = tmp_path / "tools.yml"
    path.write_text(text)
    return str(path)


async def sent(machine: Machine) -> RemotingCommand:
    async with machine.client() as client:
        request = send_request(b"x", topic="orders")
        PRODUCER.sign(request)
        return await ask(client, request)


async def failure_after_a_while(master: Machine, slave: Machine) -> tuple[str, BrokerController]:
    """Why the slave has no tables of its master's, once it has the log."""
    async with master.broker(), slave.broker() as following:
        with trio.fail_after(60):
            while (await sent(master)).code != ResponseCode.SUCCESS:  # noqa: ASYNC110 - the slave has yet to follow
                await trio.sleep(1)
        await trio.sleep(15)
        return replication_of(following).slave_synchronize.failure, following


async def test_a_slave_signs_what_it_asks(tmp_path: Path, autojump_clock: MockClock) -> None:
    master, slave = a_pair(tmp_path, aclCredentialsPath=credentials_file(tmp_path))
    failure, following = await failure_after_a_while(master, slave)
    assert failure == ""
    assert following.topics.select("orders") is not None


async def test_a_slave_at_a_white_address_need_not_sign(tmp_path: Path, autojump_clock: MockClock) -> None:
    master, slave = a_pair(tmp_path, accounts="globalWhiteRemoteAddresses: [10.0.0.2]\n" + ACCOUNTS)
    failure, following = await failure_after_a_while(master, slave)
    assert failure == ""
    assert following.topics.select("orders") is not None


async def test_a_slave_that_signs_nothing_has_the_log_alone_and_says_why(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    master, slave = a_pair(tmp_path)
    with capture_logs() as lines:
        failure, _ = await failure_after_a_while(master, slave)
    assert "AclException: No accessKey is configured" in failure
    assert [line["event"] for line in lines].count("master_link.not_synchronized") == 1


async def test_a_slave_with_a_wrong_account_does_not_fill_its_masters_log(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Each of its questions was a line there for ever; what is wrong, and what to do, it says itself."""
    wrong = credentials_file(tmp_path, "accessKey: brokers\nsecretKey: not-this-one\n")
    master, slave = a_pair(tmp_path, aclCredentialsPath=wrong)
    with capture_logs() as lines:
        async with master.broker(), slave.broker():
            await trio.sleep(700)
    refused = [line for line in lines if line["event"] == "request.failed" and line["peer"].startswith("10.0.0.2:")]
    assert len(refused) <= 2 * len({line["code"] for line in refused})
    assert sum(line["repeated"] for line in refused) > 100
    (told,) = [line for line in lines if line["event"] == "master_link.not_synchronized"]
    assert "Check signature failed" in told["reason"]
    assert "aclCredentialsPath" in told["next"]


async def test_a_master_that_must_ask_its_peers_signs_as_well(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = credentials_file(tmp_path)
    master, slave = a_pair(tmp_path, aclCredentialsPath=path)
    master.settings |= {"haPeers": "10.0.0.2:10912", "haCatchUpAtStart": "require", "aclCredentialsPath": path}
    async with slave.broker():
        async with master.broker() as leading:
            with trio.fail_after(60):
                while (await sent(master)).code != ResponseCode.SUCCESS:  # noqa: ASYNC110 - as above
                    await trio.sleep(1)
            end = leading.store.max_offset
        async with master.broker() as leading:
            with trio.fail_after(60):
                while (await sent(master)).code != ResponseCode.SUCCESS:  # noqa: ASYNC110 - as above
                    await trio.sleep(1)
            assert leading.store.max_offset > end


@pytest.mark.parametrize("role", ["SYNC_MASTER", "ASYNC_MASTER"])
async def test_a_master_that_lost_its_store_and_may_ask_its_peer_nothing_says_so(
    tmp_path: Path, role: str, autojump_clock: MockClock
) -> None:
    """It said that nothing answers there, and led to the ports."""
    path = credentials_file(tmp_path)
    master, slave = a_pair(tmp_path, aclCredentialsPath=path)
    master.settings |= {"brokerRole": role, "haPeers": "10.0.0.2:10912"}
    async with slave.broker():
        async with master.broker() as leading:
            with trio.fail_after(60):
                while (await sent(master)).code != ResponseCode.SUCCESS:  # noqa: ASYNC110 - as above
                    await trio.sleep(1)
            await trio.sleep(30)
            end = leading.store.max_offset
        master.disk = SimDisk(now_ms=WallClock())
        with capture_logs() as lines:
            async with master.broker() as leading:
                await trio.sleep(60)
                refusal = replication_of(leading).catch_up.refusal
        assert "10.0.0.2:10911 refuses this broker's questions" in refusal
        assert "AclException: No accessKey is configured" in refusal
        assert "aclCredentialsPath" in refusal
        assert "nothing answers" not in refusal
        assert any("AclException" in str(line.get("reason")) for line in lines), "the log says so as well"
        master.settings |= {"aclCredentialsPath": path}
        async with master.broker() as leading:
            await trio.sleep(60)
            assert leading.store.max_offset >= end


@pytest.mark.parametrize("text", ["", "accessKey: brokers\n"])
async def test_a_broker_does_not_begin_with_credentials_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    _, slave = a_pair(tmp_path, aclCredentialsPath=credentials_file(tmp_path, text))
    with pytest.raises(ConfigError, match=r"tools\.yml: "):
        slave.controller()


@pytest.mark.parametrize("signs", [True, False])
async def test_members_of_a_dledger_group_sign_what_they_ask_their_leader(
    tmp_path: Path, autojump_clock: MockClock, *, signs: bool
) -> None:
    home, path = home_with(tmp_path, ACCOUNTS), credentials_file(tmp_path) if signs else ""
    with capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            group = BrokerGroup(nursery, aclEnable="true", rocketmqHome=home, aclCredentialsPath=path)
            await group.start()
            await group.wait_master()
            network = group.net.host("10.9.9.9").mount()
            async with open_producer(group.clients_addresses, network=network, credentials=PRODUCER) as producer:
                await producer.send(Message("orders", b"x"), retries=100, timeout_s=60)
            async with open_producer(group.clients_addresses, network=network) as producer:
                with pytest.raises(MQBrokerError, match="AclException"):
                    await producer.send(Message("orders", b"x"))
            await trio.sleep(30)
            nursery.cancel_scope.cancel()
    refused = [line for line in lines if line["event"] == "master_link.not_synchronized"]
    assert (refused == []) is signs


async def test_a_master_says_which_slave_it_lets_have_no_tables(tmp_path: Path, autojump_clock: MockClock) -> None:
    """One of RocketMQ's, which signs nothing, followed without topics and groups: all was "ok", and in sync."""
    master, _ = a_pair(tmp_path)
    request, signed = (RemotingCommand(RequestCode.GET_ALL_CONSUMER_OFFSET) for _ in range(2))
    SessionCredentials("brokers", "12345678").sign(signed)
    network = master.net.host("10.0.0.7").mount()
    async with master.broker() as broker:
        group = replication_of(broker).group

        def told() -> list[str]:
            return group.troubles(now=trio.current_time())

        async with open_remoting_client(network, "10.0.0.1:10911") as client:
            assert (await ask(client, request)).code == ResponseCode.SYSTEM_ERROR
            assert told() == [], "no slave follows from there"
            slave = await network.connect("10.0.0.1", 10912, timeout_s=5)
            await slave.send_all(encode_report(0))
            await trio.sleep(1)
            (trouble,) = told()
            assert trouble.startswith("the slave at 10.0.0.7 is refused topics, groups and offsets (org.apache.")
            assert page_of_trouble(trouble) is Page.ACCOUNTS
            assert (await ask(client, signed)).code != ResponseCode.SYSTEM_ERROR
            assert told() == []
            assert (await ask(client, request)).code == ResponseCode.SYSTEM_ERROR
            assert told() == [trouble]
        await trio.sleep(60)
        assert told() == [], "it asks every 10 s, or has left"
        slave.close()
