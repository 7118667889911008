"""mqadmin manages a pair of rmqha's brokers: what each command prints is read, for its exit code says nothing."""

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from rmqha.codec import java_json
from tests.e2e.commands import rmqha
from tests.e2e.processes import Broker, RmqhaBroker, reaping
from tests.interop.feature_table import Record, mqadmin_of
from tests.interop.mqadmin import mqadmin
from tests.interop.test_consumers import QUEUES, Consumers, Rounds, wait_clients

pytestmark = pytest.mark.timeout(1200)

SOON_S = 120.0
"""So long what is stored may take until it is in queue and index, and what is registered until it is told."""
_FAILED = re.compile(r"Exception|^\tat |command .* failed", re.MULTILINE)


@dataclass
class Report:
    """Runs commands, and notes what became of each."""

    directory: Path
    version: str
    name_server: str
    record: Record
    problems: list[str] = field(default_factory=list)

    async def run(
        self, command: str, arguments: str, *expected: str, may_fail: bool = False, within_s: float = 0
    ) -> str:
        """Run a command; it has to print something that each of ``expected`` matches, sooner or later ``within_s``."""
        until = trio.current_time() + within_s
        words = (command, "-n", self.name_server, *arguments.split())
        while True:
            out = await mqadmin(self.directory, *words, version=self.version)
            missing = [one for one in expected if re.search(one, out, re.MULTILINE) is None]
            failed = not may_fail and _FAILED.search(out) is not None
            problem = f"does not print {missing}: {out}" if missing or failed else ""
            if not problem or trio.current_time() >= until:
                break
            await trio.sleep(0.5)
        self.record(mqadmin_of(self.version), command, works=not problem)
        if problem:
            self.problems.append(f"{command} {problem}")
        return out


def found(pattern: str, out: str) -> str:
    match = re.search(pattern, out, re.MULTILINE)
    return match.group(1) if match else "nothing"


async def manage_topics(report: Report, broker: str) -> None:
    made = r"^create topic to 127.0.0.1:\d+ success"
    await report.run("updateTopic", f"-b {broker} -t T -r 4 -w 4", made)
    await report.run("updateTopic", "-c cluster -t U -r 2 -w 3 -p 6", made)
    await report.run("topicList", "", r"^T$", r"^U$")
    await report.run("topicList", "-c", r"^cluster +T ")
    told = ('"brokerName":"pair"', '"readQueueNums":4', r'1:"127.0.0.1:\d+"')
    await report.run("topicRoute", "-t T", *told, within_s=SOON_S)
    await report.run("topicClusterList", "-t T", r"^cluster$")
    await report.run("updateTopicPerm", f"-b {broker} -t U -p 4", "from 6 to 4")
    await report.run("topicRoute", "-t U", '"perm":4', '"readQueueNums":2', '"writeQueueNums":3')


async def send_and_query(report: Report) -> None:
    sent = await report.run("sendMessage", "-t T -p hello -k key1 -c tagA -b pair -i 1", r"^pair +1 +SEND_OK +\w{32,}$")
    unique = found(r"SEND_OK +(\w+)", sent)
    await report.run("topicStatus", "-t T", r"^pair +1 +0 +1 +20\d\d-", r"^pair +3 +0 +0", within_s=SOON_S)
    await report.run("consumeMessage", "-t T -g READERS", "BODY: hello", unique)
    await report.run("printMsg", "-t T -d true", "maxOffset=1", "BODY: hello", unique)
    shown = await report.run("queryMsgByOffset", "-t T -b pair -i 1 -o 0", r"^Queue ID: +1", r"^Keys: +\[key1\]")
    offset_id = found(r"^OffsetID: +(\w{32})", shown)
    await report.run("queryMsgById", f"-i {offset_id}", r"^Topic: +T$", r"^Tags: +\[tagA\]", unique)
    await report.run("queryMsgByKey", "-t T -k key1", rf"^{unique} +1 +0$", within_s=SOON_S)
    await report.run("queryMsgByUniqueKey", f"-t T -i {unique}", r"^Queue ID: +1", r"^CommitLog Offset: +0")
    await report.run("queryCq", "-t T -q 1 -i 0", "max: 1, min: 0", "physicOffset=0")


async def look_at_brokers(report: Report, broker: str, slave: str) -> None:
    number = r"\d+(\.\d+)?"
    await report.run(
        "clusterList", "", rf"^cluster +pair +0 +{broker} +V4_9_8 .* {number}\(", rf"^cluster +pair +1 +{slave} "
    )
    await report.run("clusterList", "-m", r"^cluster +pair +\d+ +\d+ +\d+ +\d+$")
    await report.run("brokerStatus", f"-b {broker}", r"^putTps +: ", r"^msgPutTotalTodayNow +: [1-9]", r"^runtime +: ")
    await report.run("getBrokerConfig", f"-b {broker}", r"^brokerName +=  pair$", r"^brokerClusterName +=  cluster$")
    await report.run("updateBrokerConfig", f"-b {broker} -k a -v b", "CODE: 16 ", "no configuration", may_fail=True)
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        await report.run(command, f"-b {broker}", "success")
    await report.run("wipeWritePerm", "-b pair", r"wipe write perm of broker\[pair\].* [1-9]")
    await report.run("topicRoute", "-t T", '"perm":4')
    await report.run("addWritePerm", "-b pair", r"add write perm of broker\[pair\].* [1-9]")


async def look_after_consumers(report: Report, rounds: Rounds, consumers: Consumers, broker: str) -> None:
    """First one that is online, which is told; then it is gone, and mqadmin commits for it."""
    group = "group-concurrent"
    await rounds.wait_all(consumers)
    caught_up = (r"^orders +pair +\d+ +\d+ +\d+", r"^Diff Total: 0$")
    await report.run("consumerProgress", f"-g {group}", *caught_up, within_s=SOON_S)  # it commits after ten seconds
    await report.run("consumerProgress", "", rf"^{group} +1 +V\w+ +PUSH +CLUSTERING")
    await report.run("consumerConnection", f"-g {group}", r"ConsumeType: CONSUME_PASSIVELY")
    await report.run("statsAll", "-t orders", rf"^orders +{group} ")
    await report.run("brokerConsumeStats", f"-b {broker}", rf"^orders +{group} +pair ")
    before = times_got(consumers)
    await report.run("resetOffsetByTime", f"-g {group} -t orders -s 1000 -f true", r"^pair +0 +0")
    with trio.fail_after(240):
        while any(times_got(consumers)[body] <= times for body, times in before.items()):  # noqa: ASYNC110
            await trio.sleep(0.2)
    await consumers.running.kill()
    await wait_clients(rounds.broker, "concurrent")
    await report.run("resetOffsetByTime", f"-g {group} -t orders -s 1000 -f true", r"^pair +0 +\d+ +\d+ +\d+ +0 *$")
    await report.run("consumerProgress", f"-g {group}", r"^orders +pair +0 +[1-9]\d* +0 +[1-9]")
    await report.run("cloneGroupOffset", f"-s {group} -d other -t orders", "success")


def times_got(consumers: Consumers) -> Counter[str]:
    """How often each message was consumed."""
    return Counter(body for _, _, body in consumers.got("concurrent"))


async def wait_in_sync(master: Broker) -> None:
    """As an operator does: the log stays empty."""
    code, _, err = await rmqha("status", "-b", master.address, "--wait", "in-sync", "--timeout", "120")
    assert code == 0, err


async def delete_topics(report: Report) -> None:
    await report.run("deleteTopic", "-c cluster -t T", r"delete topic \[T\] from cluster \[cluster\] success")
    await report.run("topicRoute", "-t T", "CODE: 17 ", may_fail=True)
    await report.run("updateTopic", "-c cluster -t T -r 4 -w 4", "success")
    await report.run("sendMessage", "-t T -p again -b pair -i 1", "SEND_OK")
    await report.run("topicStatus", "-t T", r"^pair +1 +1 +2 ", r"^pair +0 +0 +0", within_s=SOON_S)
    out = await report.run("printMsg", "-t T -d true", "BODY: again")
    assert "BODY: hello" not in out


@pytest.mark.parametrize("version", ["4.9.7", "4.9.8"])
async def test_mqadmin_manages_a_pair(tmp_path: Path, version: str, record: Record) -> None:
    """The brokers themselves are the name server."""
    master = RmqhaBroker(tmp_path / "master", {"brokerRole": "SYNC_MASTER"})
    ha_address = f"127.0.0.1:{master.ports.ha}"
    slave = RmqhaBroker(tmp_path / "slave", {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": ha_address})
    with reaping(master, slave):
        await master.start()
        slave.conf |= {"namesrvAddr": master.address}
        await slave.start()
        await wait_in_sync(master)
        report = Report(tmp_path, version, master.address, record)
        await manage_topics(report, master.address)
        await send_and_query(report)
        await look_at_brokers(report, master.address, slave.address)
        rounds, consumers = Rounds(master), Consumers(tmp_path, master.address, "a")
        try:
            await look_after_consumers(report, rounds, consumers, master.address)
        finally:
            consumers.running.reap()
        await delete_topics(report)
        assert not report.problems, "\n".join(report.problems)


async def test_mqadmin_5_tells_how_replication_goes(tmp_path: Path, record: Record) -> None:
    master = RmqhaBroker(tmp_path / "master", {"brokerRole": "SYNC_MASTER"})
    ha_address = f"127.0.0.1:{master.ports.ha}"
    slave = RmqhaBroker(tmp_path / "slave", {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": ha_address})
    with reaping(master, slave):
        await master.start()
        await slave.start()
        await wait_in_sync(master)
        report = Report(tmp_path, "5.3.3", master.address, record)
        await report.run("clusterList", "", rf"^cluster +pair +0 +{master.address} ")
        await report.run("haStatus", f"-b {master.address}", r"^127\.0\.0\.1:\d+ .* OK ")
        await report.run("haStatus", f"-b {slave.address}", ha_address)
        assert report.problems == []


async def test_mqadmin_5_resets_one_queue_of_a_group(tmp_path: Path, record: Record) -> None:
    """And shows how far the group is. All queues went back to their beginning, and it said that this one was reset."""
    master = RmqhaBroker(tmp_path / "master", {"brokerRole": "ASYNC_MASTER"})
    with reaping(master):
        await master.start()
        report, group = Report(tmp_path, "5.3.3", master.address, record), "group-concurrent"
        rounds, consumers = Rounds(master), Consumers(tmp_path, master.address, "a")
        try:
            for _ in range(3):
                await rounds.wait_all(consumers)
            caught_up = (r"^orders +pair +\d+ +\d+ +\d+", r"^(Consume )?Diff Total: 0$")
            await report.run("consumerProgress", f"-g {group}", *caught_up, within_s=SOON_S)
            places = f"-b {master.address} -g {group} -t orders -q 0 -o 1"
            await report.run("resetOffsetByTime", f"{places} -s -1", "reset consumer offset to 1")
            with trio.fail_after(240):
                while by_queue(consumers)[0] < 5:  # noqa: ASYNC110 - another process
                    await trio.sleep(0.2)
            await rounds.wait_all(consumers)
        finally:
            consumers.running.reap()
        assert by_queue(consumers) == Counter(dict.fromkeys(range(QUEUES), 4)) + Counter({0: 2})
        await report.run("updateTopic", f"-b {master.address} -t M -a +message.type=FIFO", "success")
        refused = ("no effect here", "CODE: 1 ")
        await report.run(
            "updateTopic", f"-b {master.address} -t C -a +cleanup.policy=COMPACTION", *refused, may_fail=True
        )
        assert report.problems == []


def by_queue(consumers: Consumers) -> Counter[int]:
    """How many messages were consumed of each queue, those that came again among them."""
    return Counter(queue for queue, _, _ in consumers.got("concurrent"))


async def test_mqadmin_looks_after_groups_tries_brokers_and_exports(tmp_path: Path, record: Record) -> None:
    """What is left of 4.9.7's commands for topics, groups and messages, as RocketMQ answers them."""
    master = RmqhaBroker(tmp_path / "master", {"brokerRole": "ASYNC_MASTER"})
    with reaping(master):
        await master.start()
        report = Report(tmp_path, "4.9.7", master.address, record)
        on = f"-b {master.address}"
        await report.run("updateTopic", f"{on} -t T -r 4 -w 4", "success")
        await report.run("updateSubGroup", f"{on} -g G -s true -m false -d true -q 2 -r 5 -i 0 -w 1 -a true", "success")
        told = (r"^consumeBroadcastEnable += +true", r"^retryQueueNums += +2$", r"^retryMaxTimes += +5$")
        await report.run("getConsumerConfig", "-g G", *told)
        await report.run("checkMsgSendRT", "-t T -a 4 -s 10", *(rf"^pair +{queue} +true" for queue in range(4)))
        await report.run("sendMsgStatus", "-b pair -c 2 -s 10", "SEND_OK")
        await report.run("printMsgByQueue", "-t T -a pair -i 1 -p true -d true", "queueOffset=0", within_s=SOON_S)
        await report.run("allocateMQ", "-i 10.0.0.1,10.0.0.2 -t T", '"10.0.0.2":', '"queueId":3')
        await report.run("updateOrderConf", "-m put -t T -v pair:4", r"success.*orderConf=\[pair:4\]")
        await report.run("updateOrderConf", "-m get -t T", r"success.*orderConf=\[pair:4\]")
        await report.run("skipAccumulatedMessage", "-g nobody -t T -f true", "CODE: 1 ", may_fail=True)
        for command in ("exportConfigs", "exportMetrics", "exportMetadata"):
            await report.run(command, f"-c cluster -f {tmp_path}", rf"^export {tmp_path}/\w+.json success")
        config = java_json.loads((tmp_path / "metadata.json").read_bytes())["subscriptionGroupTable"]["G"]
        assert (config["retryMaxTimes"], config["brokerId"]) == (5, 0)
        await report.run("deleteSubGroup", f"{on} -g G -r true", "delete subscription group .* success")
        assert "retryMaxTimes" not in await report.run("getConsumerConfig", "-g G", may_fail=True)
        assert report.problems == []
