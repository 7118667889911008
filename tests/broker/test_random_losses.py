"""Three brokers, random series of losses: what was acknowledged and confirmed is there at the end, on all of them.

Whatever a master loses (all, its tables, the end of its log, some table) once a slave has it, whether a slave is
promoted then, and in what order all come back, late or twice, with clocks that are hours apart: no acknowledged message
is missing, no group is elsewhere than where it was, and what operators decided holds. RMQHA_LOSS_SERIES=200 for more of
them.
"""

import os
from contextlib import suppress
from copy import deepcopy
from random import Random
from typing import Final

import pytest
import trio

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.classic.classic_broker import make_classic_broker
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupConfig
from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.codec.admin_headers import TopicRequestHeader
from rmqha.codec.codes import RequestCode
from rmqha.codec.headers import encode_header
from rmqha.codec.remoting import RemotingCommand
from rmqha.config import load_config
from rmqha.errors import errors_in
from tests.broker.machines import COMMON, Machine, ask, send_request
from tests.broker.producers import seen
from tests.sim.journal import NodeDied
from tests.sim.sim_clock import VirtualClock, WallClock
from tests.sim.sim_disk import Inode, SimDisk
from tests.sim.sim_net import SimNet

TABLES: Final = (
    "topics.json",
    "consumerOffset.json",
    "subscriptionGroup.json",
    "delayOffset.json",
    "tablesOrigin.json",
)
TOPICS: Final = ("t", "u", "v")
GROUPS: Final = ("g", "h")
SETTLES_S: Final = 40
CONVERGES_S: Final = 400


class SkewedMachine(Machine):
    """Its clock is wrong by some hours."""

    skew_ms = 0

    def controller(self, **settings: str) -> BrokerController:
        config = load_config(None, COMMON | {"brokerIP1": self.address} | settings)
        return make_classic_broker(
            config,
            disk=self.disk.mount(),
            network=self.net.host(self.address).mount(),
            now_ms=WallClock(skew_ms=self.skew_ms),
            chance=lambda: 0.5,
        )


class Series:
    """One of them, and what is expected at its end."""

    def __init__(self, seed: int, nursery: trio.Nursery) -> None:
        self.random = Random(seed)
        self.nursery = nursery
        net = SimNet()
        self.machines = [SkewedMachine(net, f"10.0.0.{number}") for number in (1, 2, 3)]
        for machine in self.machines:
            machine.skew_ms = self.random.choice((0, 0, -7_200_000, 7_200_000))
        self.catch_up = self.random.choice(("try", "require"))
        self.peers_first = self.random.choice((1, -1))
        self.leader = 0
        self.copies: dict[int, dict[str, Inode]] = {}
        """Of masters' disks, from before."""
        self.running: list[BrokerController | None] = [None] * 3
        self.scopes = [trio.CancelScope() for _ in range(3)]
        self.sent: dict[tuple[str, int], list[bytes]] = {}
        """By queue what was acknowledged since its topic was made last."""
        self.begins: dict[tuple[str, int], int] = {}
        self.topics: dict[str, int | None] = {}
        """The permissions that an operator decided; None: deleted."""
        self.groups: dict[str, int | None] = {}
        self.offsets: dict[tuple[str, str], int] = {}
        self.story: list[str] = []
        self.count = 0

    def tell(self, what: str) -> None:
        self.story.append(f"{trio.current_time():.0f} {what}")

    @property
    def master(self) -> BrokerController | None:
        return self.running[self.leader]

    def settings_of(self, number: int) -> dict[str, str]:
        leader = self.machines[self.leader].address
        if number != self.leader:
            roads = {"haMasterAddress": f"{leader}:10912", "masterAddress": f"{leader}:10911"}
            return {"brokerRole": "SLAVE", "brokerId": str(number + 1)} | roads
        others = [machine.address for machine in self.machines if machine.address != leader][:: self.peers_first]
        peers = ",".join(f"{other}:10912" for other in others)
        return {"brokerRole": "ASYNC_MASTER", "haPeers": peers, "haCatchUpAtStart": self.catch_up}

    async def start(self, number: int) -> None:
        if self.running[number] is None:
            self.tell(f"start {number}")
            self.scopes[number] = trio.CancelScope()
            controller = self.machines[number].controller(**self.settings_of(number))
            self.running[number] = controller
            self.nursery.start_soon(self._run, controller, self.scopes[number])
            await trio.sleep(self.random.choice((0, 0.5, 5)))

    async def _run(self, controller: BrokerController, scope: trio.CancelScope) -> None:
        try:
            with scope:
                await controller.run()
        except (NodeDied, BaseExceptionGroup) as raised:  # it was killed
            errors_in(raised, NodeDied)

    async def stop(self, number: int) -> None:
        controller, self.running[number] = self.running[number], None
        if controller is None:
            return
        if self.random.random() < 0.5:
            self.tell(f"stop {number}")
            controller.stop()
            await trio.sleep(10)
        else:
            self.tell(f"kill {number}")
        self.scopes[number].cancel()
        self.machines[number].disk.kill()
        self.machines[number].net.host(self.machines[number].address).kill()
        await trio.sleep(0.1)

    # ---- what clients and operators do on the master

    async def work(self, steps: int) -> None:
        for _ in range(steps):
            with suppress(trio.TooSlowError, OSError):
                with trio.move_on_after(30):
                    await self.random.choice(
                        (
                            self.send,
                            self.send,
                            self.send,
                            self.commit,
                            self.commit,
                            self.decide_topic,
                            self.decide_group,
                        )
                    )()
            await trio.sleep(self.random.choice((0, 0.1, 3)))

    async def send(self) -> None:
        topic, queue_id = self.random.choice(TOPICS), self.random.randrange(2)
        self.count += 1
        body = b"%d" % self.count * self.random.choice((1, 1, 1500))
        async with self.machines[self.leader].client() as client:
            answer = await ask(client, send_request(body, topic=topic, queue_id=queue_id))
        if answer.code == 0:
            self.sent.setdefault((topic, queue_id), []).append(body)
            if self.topics.get(topic, 0) is None:
                self.topics.pop(topic)

    async def commit(self) -> None:
        topic, group = self.random.choice(TOPICS), self.random.choice(GROUPS)
        if self.master is None or not (end := self.ends(topic)):
            return
        known = self.offsets.get((group, topic), self.begins.get((topic, 0), 0))
        offset = self.random.randint(min(known, end), end)
        with suppress(Exception):
            self.master.offsets.commit_offset(group, topic, 0, offset=offset, peer="10.0.0.9:5")
            self.offsets[group, topic] = offset

    def ends(self, topic: str) -> int:
        sent = self.sent.get((topic, 0), [])
        return self.begins.get((topic, 0), 0) + len(sent)

    async def decide_topic(self) -> None:
        topic = self.random.choice(("v", "w"))
        master = self.master
        if master is None or not master.replication.opened.is_set():
            return
        if self.random.random() < 0.3:
            async with self.machines[self.leader].client() as client:
                fields = encode_header(TopicRequestHeader(topic))
                request = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, ext_fields=fields)
                if (await ask(client, request)).code != 0:
                    return
            self.tell(f"delete {topic}")
            self.topics[topic] = None
            for queue_id in range(2):
                key = (topic, queue_id)
                self.begins[key] = self.begins.get(key, 0) + len(self.sent.pop(key, []))
        else:
            perm = self.random.choice((4, 6))
            master.topics.update_topic_config(TopicConfig(topic, 2, 2, perm))
            self.topics[topic] = perm
            self.tell(f"{topic} has {perm}")

    async def decide_group(self) -> None:
        master, group = self.master, self.random.choice(GROUPS)
        if master is None or not master.replication.opened.is_set():
            return
        if self.random.random() < 0.3:
            master.groups.delete(group)
            self.groups[group] = None
        else:
            times = self.random.randrange(1, 9)
            master.groups.update(SubscriptionGroupConfig(group, retry_max_times=times))
            self.groups[group] = times
        self.tell(f"group {group}: {self.groups[group]}")

    # ---- what is lost

    def lose(self) -> None:
        """Of the master, which is stopped."""
        machine = self.machines[self.leader]
        copy = self.copies.get(self.leader, {})
        new_copy = deepcopy(dict(machine.disk.files))
        what = self.random.choice(("nothing", "all", "config", "table", "end", "config and end"))
        self.tell(f"lose {what}")
        if what == "all":
            machine.disk = SimDisk(now_ms=WallClock())
        if "end" in what and copy:
            machine.disk = SimDisk(now_ms=WallClock())
            machine.disk.files.update(deepcopy(copy))
        lost = "/config/" if "config" in what else f"/config/{self.random.choice(TABLES)}" if what == "table" else ""
        for name in [name for name in machine.disk.files if lost and lost in name]:
            del machine.disk.files[name]
        if self.random.random() < 0.7:
            self.copies[self.leader] = new_copy

    async def promote(self, candidates: list[int]) -> None:
        """One of those that have all."""
        number = self.random.choice(candidates)
        await self.stop(number)
        self.tell(f"promote {number}")
        self.leader = number

    async def live(self, rounds: int) -> None:
        for number in (0, 1, 2):
            await self.start(number)
        await trio.sleep(15)
        await self.send()  # of a log that is empty on all of them nobody knows that anything is missing
        for _ in range(rounds):
            await self.work(self.random.randrange(2, 12))
            await trio.sleep(SETTLES_S)
            slaves = [number for number in range(3) if number != self.leader]
            left = [number for number in slaves if self.random.random() < 0.3][:1]
            for number in left:
                await self.stop(number)
                await self.work(self.random.randrange(5))
                await trio.sleep(SETTLES_S)
            await self.stop(self.leader)
            self.lose()
            if is_promoted := self.random.random() < 0.4:
                await self.promote([number for number in slaves if number not in left])
            for number in slaves:
                if number != self.leader and (is_promoted or self.random.random() < 0.4):
                    await self.stop(number)
            order = [0, 1, 2]
            self.random.shuffle(order)
            for number in order:
                await self.start(number)
                if number == self.leader:
                    await trio.sleep(self.random.choice((0, 30, 100)))
                if self.random.random() < 0.2:
                    await self.stop(number)
                    await self.start(number)
            await trio.sleep(CONVERGES_S)
            await self.check()

    async def check(self) -> None:
        for number, broker in enumerate(self.running):
            assert broker is not None
            for (topic, queue_id), bodies in self.sent.items():
                begin = self.begins.get((topic, queue_id), 0)
                assert broker.store.queues.range_of(topic, queue_id) == (begin, begin + len(bodies)), (number, topic)
                assert broker.topics.select(topic) is not None, (number, topic)
            if number == self.leader:
                await seen(broker)
            for topic, perm in self.topics.items():
                config = broker.topics.select(topic)
                assert (config.perm if config else None) == perm, (number, topic)
            for group, times in self.groups.items():
                known = broker.groups.select(group)
                assert (known.retry_max_times if known else None) == (16 if times is None else times), (number, group)
            for (group, topic), offset in self.offsets.items():
                if self.topics.get(topic, 0) is not None:
                    assert broker.offsets.query_offset(group, topic, 0) == offset, (number, group, topic)


@pytest.mark.parametrize("seed", range(int(os.environ.get("RMQHA_LOSS_SERIES", "6"))))
async def test_nothing_is_lost_whatever_a_master_loses(seed: int, virtual_clock: VirtualClock) -> None:
    async with trio.open_nursery() as nursery:
        series = Series(seed, nursery)
        try:
            await series.live(rounds=2)
        except BaseException as error:
            error.add_note("\n".join(series.story))
            raise
        for number in range(3):
            await series.stop(number)
        nursery.cancel_scope.cancel()
