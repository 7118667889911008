"""RocketMQ's clients and mqadmin with accounts: our broker grants what RocketMQ's does, from the same file."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from rmqha.client import Message, SessionCredentials, open_producer
from rmqha.codec.codes import ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.client import open_remoting_client
from rmqha.transport import TcpNetwork
from tests.broker.machines import send_request
from tests.e2e.commitlog import wait_identical
from tests.e2e.name_servers import RmqhaNameServer
from tests.e2e.processes import Broker, Child, RmqhaBroker, reaping
from tests.interop.dledger_groups import java_argv
from tests.interop.mqadmin import mqadmin, mqadmin_until
from tests.interop.peers import JavaBroker, compiled, rocketmq_libs
from tests.interop.programs import programs
from tests.interop.test_tables import MESSAGE, tables_of, wait_tables
from tests.interop.test_tables import name_server as name_server_of
from tests.interop.test_transactions import CONF, Transactions

pytestmark = pytest.mark.timeout(900)

PLAIN_ACL = """
globalWhiteRemoteAddresses:
  - 10.10.103.*
accounts:
  - accessKey: producer
    secretKey: 12345678
    topicPerms: [orders=PUB]
  - accessKey: consumer
    secretKey: "87654321"
    defaultGroupPerm: DENY
    topicPerms:
      - orders=SUB
    groupPerms:
      - readers=SUB
      - workers=SUB
  - accessKey: everything
    secretKey: 12345678
    admin: false
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: SUB
  - accessKey: administrator
    secretKey: 12345678
    whiteRemoteAddress: 192.168.1.{1,2}
    admin: true
"""
TOOLS = "accessKey: administrator\nsecretKey: 12345678\n"
CLIENTS = (
    "nobody", "stranger/12345678", "producer/wrong-secret", "producer/12345678", "consumer/87654321",
    "everything/12345678", "administrator/12345678",
)  # fmt: skip
MAY = {
    "producer": {"send", "delay", "batch"},
    "consumer": {"pull"},
    "everything": {"send", "other", "delay", "batch", "pull"},
    "administrator": {"send", "other", "delay", "batch", "pull", "create"},
}
ACTIONS = ("send", "other", "delay", "batch", "pull", "create")
NAMES = ("nobody", "stranger", "forger", *MAY)


@pytest.fixture
def name_server(tmp_path: Path) -> Iterator[RmqhaNameServer]:
    server = RmqhaNameServer(tmp_path / "namesrv")
    yield server
    server.close()


def broker_with_accounts(directory: Path, kind: type[Broker], **conf: object) -> Broker:
    """Its accounts are those of PLAIN_ACL."""
    home = directory / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(PLAIN_ACL)
    return kind(directory, {"brokerRole": "ASYNC_MASTER", "aclEnable": "true", "rocketmqHome": home, **conf})


@pytest.mark.parametrize("kind", [RmqhaBroker, JavaBroker])
async def test_accounts_may_what_the_file_says(
    tmp_path: Path, name_server: RmqhaNameServer, kind: type[Broker]
) -> None:
    await name_server.start()
    broker = broker_with_accounts(tmp_path / "broker", kind, namesrvAddr=name_server.address)
    with reaping(broker):
        await broker.start()
        make_topic = (
            "updateTopic",
            "-b",
            broker.address,
            "-t",
            "orders",
            "-r",
            "4",
            "-w",
            "4",
            "-n",
            name_server.address,
        )
        assert "AclException" in await mqadmin(tmp_path, *make_topic)
        (tmp_path / "mqadmin" / "conf" / "tools.yml").write_text(TOOLS)
        assert "success" in await mqadmin(tmp_path, *make_topic)
        argv = java_argv("Acl.java", name_server.address, *CLIENTS, directory=tmp_path)
        child = Child(argv, log=tmp_path / "acl.log")
        try:
            with trio.fail_after(480):
                await child.wait_output("done", timeout_s=240)
                found = re.findall(r"^(\w+) (\w+) (SEND_OK|refused|failed.*)$", child.output(), re.MULTILINE)
                expected = {
                    (name, action): "SEND_OK" if action in MAY.get(name, ()) else "refused"
                    for name in NAMES
                    for action in ACTIONS
                }
                if kind is JavaBroker:  # asks nothing of batches
                    expected["consumer", "batch"] = "SEND_OK"
                assert {(name, action): outcome for name, action, outcome in found} == expected
                for consumed in ("by 0", "one 0", "late 0", "late 1"):
                    await child.wait_output(f"consumed {consumed}")
        finally:
            child.reap()


async def test_a_slave_of_ours_signs_what_it_asks_a_master_of_rocketmqs(tmp_path: Path) -> None:
    """It gets the tables; one that does not sign copies the log alone, as RocketMQ's slaves would."""
    master = broker_with_accounts(tmp_path / "master", JavaBroker)
    (tools := tmp_path / "tools.yml").write_text(TOOLS.replace("administrator", "producer"))
    conf = {"brokerRole": "SLAVE", "haMasterAddress": master.ha_address, "masterAddress": master.address}
    signing = RmqhaBroker(tmp_path / "signing", {**conf, "brokerId": 1, "aclCredentialsPath": tools})
    silent = RmqhaBroker(tmp_path / "silent", {**conf, "brokerId": 2})
    with reaping(master, signing, silent):
        for broker in (master, signing, silent):
            await broker.start()
        (tmp_path / "mqadmin" / "conf").mkdir(parents=True)
        (tmp_path / "mqadmin" / "conf" / "tools.yml").write_text(TOOLS)
        make_topic = ("updateTopic", "-b", master.address, "-t", "orders", "-n", master.address)
        assert "success" in await mqadmin(tmp_path, *make_topic)
        topics = signing.store / "config" / "topics.json"
        with trio.fail_after(120):
            while not topics.is_file() or "orders" not in topics.read_text():  # noqa: ASYNC110 - another process
                await trio.sleep(0.2)
        await silent.running.wait_output("AclException: No accessKey.*master_link.not_synchronized")


class SigningJavaBroker(JavaBroker):
    """It signs what it asks; RocketMQ's brokers do so by a hook of their operator's alone."""

    main = ("SigningBroker", "producer", "12345678")

    def class_path(self) -> str:
        return f"{compiled('SigningBroker.java', rocketmq_libs())}:{super().class_path()}"


async def fill_signed(master: Broker) -> None:
    """See :func:`fill`."""
    everything = SessionCredentials("everything", "12345678")
    commit = {"consumerGroup": "g", "topic": "travels", "queueId": "0", "commitOffset": "3"}
    async with open_remoting_client(TcpNetwork(), master.address, credentials=everything) as client:
        for request in (*(MESSAGE() for _ in range(4)), RemotingCommand(15, ext_fields=commit)):
            assert (await client.invoke(request, timeout_s=60)).code == ResponseCode.SUCCESS


async def test_java_slaves_of_a_master_of_ours_that_has_accounts(tmp_path: Path) -> None:
    """One that signs gets the tables. One that does not copies the log alone, until its address is listed."""
    size = {"mappedFileSizeCommitLog": 1 << 20}
    master = broker_with_accounts(tmp_path / "master", RmqhaBroker, **size)
    with reaping(master):
        await master.start()
        await fill_signed(master)
        async with name_server_of(master) as address:
            conf = {"brokerRole": "SLAVE", "namesrvAddr": address, **size}
            signing = SigningJavaBroker(tmp_path / "signing", {**conf, "brokerId": 1})
            silent = JavaBroker(tmp_path / "silent", {**conf, "brokerId": 2})
            with reaping(signing, silent):
                for slave in (signing, silent):
                    await slave.start()
                await wait_tables(signing)
                assert await tables_of(silent) == (0, 0)
                await wait_identical(master.store / "commitlog", silent.store / "commitlog")
                listing = PLAIN_ACL.replace("10.10.103.*", "127.0.0.1")
                (tmp_path / "master" / "home" / "conf" / "plain_acl.yml").write_text(listing)
                await wait_tables(silent)


async def test_transactions_of_java_producers_with_accounts(tmp_path: Path) -> None:
    """Another account's producer is in the same group, and is not asked: it may not send to the topic."""
    conf = {key: value for key, value in CONF.items() if key != "brokerRole"}
    broker = broker_with_accounts(tmp_path / "broker", RmqhaBroker, **conf)
    with reaping(broker):
        (path := tmp_path / "broker" / "home" / "conf" / "plain_acl.yml").write_text(
            PLAIN_ACL.replace("orders=PUB", "accounts=PUB").replace("orders=SUB", "accounts=SUB")
        )
        assert path.is_file()
        await broker.start()
        outsider = Transactions(tmp_path, "outsider", broker.address, account="consumer/87654321")
        with programs(outsider):
            await outsider.running.wait_output("ready")
            later = [f"later_commit-{number}" for number in range(6)]
            producer = Transactions(
                tmp_path, "producer", broker.address, "commit-1", "rollback-1", *later, account="producer/12345678"
            )
            reader = Transactions(tmp_path, "reader", broker.address, "consume", account="consumer/87654321")
            with programs(producer, reader):
                await producer.wait_told("asked", set(later))
                await reader.wait_told("got", {"commit-1", *later})
                assert outsider.keys("asked") == []
                assert "rollback-1" not in reader.keys("got")


async def test_mqadmin_finds_a_message_by_its_unique_key(tmp_path: Path) -> None:
    """RocketMQ's brokers refuse that: the flag that says so is signed, and they leave it out."""
    broker = broker_with_accounts(tmp_path / "broker", RmqhaBroker)
    with reaping(broker):
        await broker.start()
        (tmp_path / "mqadmin" / "conf").mkdir(parents=True)
        (tmp_path / "mqadmin" / "conf" / "tools.yml").write_text(TOOLS)
        credentials = SessionCredentials("everything", "12345678")
        async with open_producer(broker.address, credentials=credentials) as producer:
            sent = await producer.send(Message("orders", b"found"))
        asked = ("queryMsgByUniqueKey", "-i", sent.msg_id, "-t", "orders", "-n", broker.address)
        assert "orders" in await mqadmin_until(tmp_path, *asked, shows="Queue Offset")
        refused = await mqadmin(
            tmp_path, "updateGlobalWhiteAddr", "-b", broker.address, "-g", "*", "-n", broker.address
        )
        assert "rmqha takes no accounts from remote" in refused


async def code_of_a_send(broker: Broker, credentials: SessionCredentials) -> int:
    request = send_request(b"x", topic="orders", properties="KEYS\x01key")  # an empty text is none to RocketMQ
    credentials.sign(request)
    async with open_remoting_client(TcpNetwork(), broker.address) as client:
        return (await client.invoke(request, timeout_s=60)).code


async def wait_send(broker: Broker, credentials: SessionCredentials, *, code: int) -> None:
    """RocketMQ reads the file that it has just written once more, a moment later."""
    with trio.fail_after(120):
        while await code_of_a_send(broker, credentials) != code:  # noqa: ASYNC110 - another process
            await trio.sleep(0.1)


@pytest.mark.parametrize("kind", [RmqhaBroker, JavaBroker])
async def test_mqadmin_changes_accounts_where_the_operator_wants_that(
    tmp_path: Path, name_server: RmqhaNameServer, kind: type[Broker]
) -> None:
    await name_server.start()
    ours = {"aclRemoteChangesEnable": "true"} if kind is RmqhaBroker else {}
    broker = broker_with_accounts(tmp_path / "broker", kind, namesrvAddr=name_server.address, **ours)
    newcomer = SessionCredentials("newcomer", "changeable")

    async def change(command: str, *arguments: str) -> str:
        return await mqadmin(tmp_path, command, "-b", broker.address, *arguments, "-n", name_server.address)

    with reaping(broker):
        await broker.start()
        account = ("-a", "newcomer", "-s", "changeable", "-t", "orders=PUB,other=SUB", "-g", "readers=SUB")
        assert "AclException" in await change("clusterAclConfigVersion")
        (tmp_path / "mqadmin" / "conf").mkdir(parents=True, exist_ok=True)
        (tmp_path / "mqadmin" / "conf" / "tools.yml").write_text(TOOLS)
        assert "success" in await change("updateTopic", "-t", "orders")
        await wait_send(broker, newcomer, code=ResponseCode.SYSTEM_ERROR)
        assert "success" in await change("updateAclConfig", *account)
        await wait_send(broker, newcomer, code=ResponseCode.SUCCESS)
        assert "plain_acl.yml" in (shown := await change("clusterAclConfigVersion"))
        assert broker.address in shown
        assert "success" in await change("deleteAclConfig", "-a", "newcomer")
        await wait_send(broker, newcomer, code=ResponseCode.SYSTEM_ERROR)
        assert "success" in await change("updateGlobalWhiteAddr", "-g", "10.10.103.*,127.0.0.1")
        await wait_send(broker, newcomer, code=ResponseCode.SUCCESS)
        await broker.stop()
        await broker.start()
        await wait_send(broker, newcomer, code=ResponseCode.SUCCESS)


async def test_either_broker_reads_the_accounts_that_mqadmin_changed_at_the_other(
    tmp_path: Path, name_server: RmqhaNameServer
) -> None:
    await name_server.start()
    theirs = broker_with_accounts(tmp_path / "theirs", JavaBroker, namesrvAddr=name_server.address, brokerName="theirs")
    ours = RmqhaBroker(
        tmp_path / "ours",
        {"brokerRole": "ASYNC_MASTER", "aclEnable": "true", "aclRemoteChangesEnable": "true"}
        | {"rocketmqHome": theirs.conf["rocketmqHome"], "namesrvAddr": name_server.address},
    )
    (tmp_path / "mqadmin" / "conf").mkdir(parents=True)
    (tmp_path / "mqadmin" / "conf" / "tools.yml").write_text(TOOLS)
    with reaping(ours, theirs):
        for broker, name in ((theirs, "neighbour"), (ours, "newcomer")):
            await broker.start()
            fields = ("-a", name, "-s", "changeable", "-t", "orders=PUB", "-n", name_server.address)
            assert "success" in await mqadmin(tmp_path, "updateAclConfig", "-b", broker.address, *fields)
        await theirs.stop()
        await theirs.start()
        for broker, name in ((ours, "neighbour"), (theirs, "newcomer"), (theirs, "neighbour"), (ours, "newcomer")):
            await wait_send(broker, SessionCredentials(name, "changeable"), code=ResponseCode.SUCCESS)
