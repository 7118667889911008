"""Groups of servers under attack: what was acknowledged is there, and all are the same.

RMQHA_DLEDGER_ATTACKS is the number of runs.
"""

import os
import random

import pytest
import trio
from trio.testing import MockClock

from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.errors import RemotingError
from tests.dledger.servers import Member, ServerGroup

CLIENTS = 4
KINDS = ["kill", "kill", "power", "start", "start", "start", "part", "one way", "heal", "heal"]


async def append_on(group: ServerGroup, number: int) -> None:
    """One entry after another, whatever happens."""
    count = 0
    while True:
        count += 1
        body = b"%d/%d " % (number, count) * (count % 7)
        try:
            answer = await group.client.append(body)
        except RemotingError:
            await trio.sleep(0.1)
            continue
        if answer.code == DLedgerResponseCode.SUCCESS:
            assert answer.index not in group.acknowledged, "one index, two entries"
            group.acknowledged[answer.index] = body
        await trio.sleep(0.02)


async def strike(group: ServerGroup, member: Member, kind: str) -> None:
    match kind:
        case "kill" if member.server is not None:
            member.kill()
        case "power" if member.server is not None:
            member.cut_power()
        case "start" if member.server is None:
            await member.start()
        case "part":
            for name, address in group.addresses.items():
                if name != member.name:
                    group.net.cut(member.host.address, address)
                    group.net.cut(address, member.host.address)
        case "one way":
            for name, address in group.addresses.items():
                if name != member.name:
                    group.net.cut(member.host.address, address)
        case "heal":
            group.net.heal()


@pytest.mark.parametrize("seed", range(int(os.environ.get("RMQHA_DLEDGER_ATTACKS", "2"))))
async def test_a_group_under_attack_loses_nothing(nursery: trio.Nursery, autojump_clock: MockClock, seed: int) -> None:
    group, chance = ServerGroup(nursery), random.Random(seed)
    await group.start()
    async with trio.open_nursery() as clients:
        for number in range(CLIENTS):
            clients.start_soon(append_on, group, number)
        for _ in range(8):
            await trio.sleep(chance.uniform(0.2, 6))
            kind = chance.choice(
                ["kill", "kill", "power", "start", "start", "start", "part", "one way", "heal", "heal"]
            )
            await strike(group, chance.choice(list(group.members.values())), kind)
        group.net.heal()
        for member in group.members.values():
            if member.server is None:
                await member.start()
        await group.wait(lambda: len(group.leaders) == 1)
        clients.cancel_scope.cancel()
    await group.append(b"last")
    await group.wait_same()
    assert len(group.acknowledged) > 20
