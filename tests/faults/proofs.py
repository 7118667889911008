"""What a test of a fault shows each time: no SEND_OK from now on, nothing acknowledged lost, equal logs in the end."""

from tests.e2e.commands import rmqha
from tests.e2e.commitlog import HeldMessages, wait_identical
from tests.e2e.conftest import Pair
from tests.e2e.load import LoadProducer, wait_in_sync
from tests.e2e.processes import Broker


async def no_send_ok_any_more(load: LoadProducer, *, refusals: int = 100) -> None:
    """Every answer from now on is a refusal with an honest status; what was underway may still be SEND_OK."""
    await load.wait_refused(refusals)
    final = len(load.acknowledged)
    await load.wait_refused(refusals)
    assert len(load.acknowledged) == final, f"SEND_OK goes on: {load.codes}"


def lost(acknowledged: set[int], broker: Broker, *, live: bool = True) -> set[int]:
    """Which of these messages the whole log of a broker lacks."""
    return acknowledged - HeldMessages(broker.store / "commitlog", "orders").read(live=live)


async def all_there(pair: Pair, acknowledged: set[int]) -> None:
    """Both are in sync again, their logs are equal, and hold everything acknowledged."""
    await wait_in_sync(pair.master.ports.listen)
    await wait_identical(*(broker.store / "commitlog" for broker in pair.brokers))
    for broker in pair.brokers:
        missing = lost(acknowledged, broker)
        assert not missing, f"the {broker.directory.name} lacks acknowledged {sorted(missing)[:5]}"


async def status(broker: Broker) -> tuple[int, str]:
    """Exit code and text of ``rmqha status``."""
    code, out, _ = await rmqha("status", "-b", broker.address)
    return code, out
