"""Mixed groups whose leader is killed again and again under load: nothing acknowledged is lost, all have the same."""

import hashlib
import os
from collections import Counter
from pathlib import Path

import pytest
import trio

from rmqha.config.dledger_peers import parse_peers
from rmqha.dledger.dledger_client import open_dledger_client
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.errors import MQBrokerError, RemoteProtocolError, RemotingError
from tests.e2e.dledger_groups import NAME, running
from tests.interop.dledger_groups import JAVA, OURS, MixedGroup
from tests.interop.feature_table import DLEDGER

pytestmark = [pytest.mark.timeout(900), pytest.mark.tries(DLEDGER, "go on when leaders are killed under load")]

KILLS = int(os.environ.get("RMQHA_INTEROP_KILLS", "4"))
CLIENTS = 8


class Load:
    """Clients that append one entry after another, and what was acknowledged."""

    def __init__(self, peers: str) -> None:
        self.peers = parse_peers(peers)
        self.acknowledged: dict[int, str] = {}
        self.codes = Counter[str]()
        self.is_over = False

    async def run(self, client_number: int) -> None:
        number = 0
        async with open_dledger_client(group=NAME, peers=self.peers) as client:
            while not self.is_over:
                number += 1
                body = f"{client_number}/{number}"
                try:
                    answer = await client.append(body.encode())
                except (RemotingError, MQBrokerError, RemoteProtocolError) as error:
                    self.codes[type(error).__name__] += 1
                    await trio.sleep(0.1)
                    continue
                self.codes[str(answer.code)] += 1
                if answer.code == DLedgerResponseCode.SUCCESS:
                    assert answer.index not in self.acknowledged, "one index, two entries"
                    self.acknowledged[answer.index] = body
                else:
                    await trio.sleep(0.05)


@pytest.mark.parametrize("kinds", [[JAVA, JAVA, OURS], [JAVA, OURS, OURS]], ids="-".join)
async def test_leaders_are_killed_under_load(tmp_path: Path, kinds: list[str]) -> None:
    with running(MixedGroup(tmp_path, kinds)) as group:
        group.start()
        await group.healthy()
        load = Load(group.peers)
        async with trio.open_nursery() as nursery:
            for number in range(CLIENTS):
                nursery.start_soon(load.run, number)
            for number in range(KILLS):
                await group.command("transfer", "-t", group.ids[number % len(kinds)])  # Java's may fail
                leader = (await group.healthy())["leader"]
                await group.children[leader].kill()
                await group.healthy(at_least=2, not_led_by=leader)
                before = len(load.acknowledged)
                with trio.fail_after(120):
                    while len(load.acknowledged) < before + 20:  # noqa: ASYNC110 - several clients add to it
                        await trio.sleep(0.05)
                group.start(leader)
                await group.healthy()
            load.is_over = True
        [last] = await group.append(count=1, text="last")
        await group.wait_same(last)
        await group.stop()
        first, *others = [await group.dump(member_id) for member_id in group.ids]
        assert all(other == first for other in others)
        found = {line["index"]: line["bodySha256"] for line in first if "index" in line}
        said = {index: hashlib.sha256(body.encode()).hexdigest() for index, body in load.acknowledged.items()}
        assert {index: found.get(index) for index in said} == said
