"""What a test of a fault shows each time: no SEND_OK from now on, nothing acknowledged lost, equal logs in the end."""

import re
from collections.abc import Callable

import trio

from rmqha.exit_codes import EXIT_STORE_FAILED
from tests.e2e.commands import rmqha
from tests.e2e.commitlog import HeldMessages, wait_identical
from tests.e2e.conftest import Pair
from tests.e2e.load import LoadProducer, Sends, body_of_size, wait_in_sync
from tests.e2e.processes import Broker


async def no_send_ok_any_more(load: LoadProducer, *, refusals: int = 100, relapses: int = 0) -> None:
    """Every answer from now on is a refusal with an honest status; what was underway may still be SEND_OK.

    What is lacking may be there again for a moment, and is then used: so many times that is no failure.
    """
    await load.wait_refused(refusals)
    final = len(load.acknowledged)
    await load.wait_refused(refusals)
    while len(load.acknowledged) != final and relapses:
        final, relapses = len(load.acknowledged), relapses - 1
        await load.wait_refused(2 * refusals)
    assert len(load.acknowledged) == final, f"SEND_OK goes on: {load.codes}"


def lost(acknowledged: set[int], broker: Broker, *, torn: bool = True) -> set[int]:
    """Which of these messages the whole log of a broker lacks."""
    return acknowledged - HeldMessages(broker.store / "commitlog", "orders").read(torn=torn)


async def all_there(pair: Pair, acknowledged: set[int]) -> None:
    """Both are in sync again, their logs are equal, and hold everything acknowledged."""
    await wait_in_sync(pair.master.ports.listen)
    await wait_identical(*(broker.store / "commitlog" for broker in pair.brokers))
    for broker in pair.brokers:
        missing = lost(acknowledged, broker)
        assert not missing, f"the {broker.directory.name} lacks acknowledged {sorted(missing)[:5]}"


async def ends_acknowledgement(
    pair: Pair,
    victim: Broker,
    *,
    breaks: Callable[[], object],
    reason: str,
    makes_readable: Callable[[], object] = lambda: None,
    exit_codes: tuple[int, ...] = (EXIT_STORE_FAILED,),
    relapses: int = 0,
) -> set[int]:
    """Break the victim's disk under load: no SEND_OK from then on, and log, status and exit code say why.

    Both have been stopped afterwards, and their logs were read, for which the disk may have to be ``makes_readable``;
    returns what was acknowledged.
    """
    await pair.start()
    await wait_in_sync(pair.master.ports.listen)
    load = LoadProducer(pair.master.ports.listen, Sends("orders", body=body_of_size(2_000)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await load.wait_acknowledged(500)
        breaks()
        await victim.running.wait_output(rf"store\.write_failed|{reason}")  # some room may be left until then
        await no_send_ok_any_more(load, relapses=relapses)
        nursery.cancel_scope.cancel()
    assert load.unexpected == [] or victim is pair.master
    code, text = await status(victim)
    assert (code, bool(re.search(reason, text))) == (1, True), text
    codes = {broker: await broker.stop() for broker in pair.brokers}
    assert codes.pop(victim) in exit_codes
    assert [*codes.values()] == [0]
    makes_readable()
    for broker in pair.brokers:
        assert not lost(load.acknowledged, broker, torn=True)
    return load.acknowledged


async def all_there_after_restart(pair: Pair, acknowledged: set[int]) -> None:
    """Once the fault is repaired, both start; then see :func:`all_there`."""
    await pair.slave.start()
    await pair.master.start()
    await all_there(pair, acknowledged)


async def status(broker: Broker) -> tuple[int, str]:
    """Exit code and text of ``rmqha status``."""
    code, out, _ = await rmqha("status", "-b", broker.address)
    return code, out
