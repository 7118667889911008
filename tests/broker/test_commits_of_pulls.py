"""A pull that commits: a master takes it, as a commit by itself; a slave answers the pull, and leaves the commit."""

import pytest
import trio

from rmqha.broker.broker_controller import BrokerController
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import PullSysFlag, UpdateConsumerOffsetRequestHeader, encode_header
from rmqha.codec.remoting import RemotingCommand
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.broker.test_pair import Pair
from tests.sim.sim_clock import VirtualClock

GROUP = "consumers"


def pull(code: RequestCode, offset: int, *, commit: int | None, suspend_ms: int) -> RemotingCommand:
    """As a consumer sends it; without ``commit`` the field is there, and the flag is not."""
    request = pull_request(offset, suspend_ms=suspend_ms)
    flags = int(request.ext_fields["sysFlag"]) | (0 if commit is None else PullSysFlag.COMMIT_OFFSET)
    fields = request.ext_fields | {"sysFlag": str(int(flags)), "commitOffset": str(2 if commit is None else commit)}
    return RemotingCommand(code, ext_fields=fields)


async def consumed(machine: Machine, broker: BrokerController, request: RemotingCommand) -> int | None:
    """Where the group is afterwards; the pull is answered whether or not."""
    async with machine.client() as client:
        answer = await ask(client, request)
    assert answer.code in {ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY}
    return broker.offsets.query_offset(GROUP, "t", 0)


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
@pytest.mark.parametrize(("offset", "suspend_ms"), [(0, 0), (1, 0), (3, 0), (3, 500)], ids=str)
async def test_only_a_master_takes_the_commit_of_a_pull(
    code: RequestCode, offset: int, suspend_ms: int, virtual_clock: VirtualClock
) -> None:
    """A consumer that was sent to a slave commits there what its master has as well, and perhaps later than that."""
    pair = Pair()
    async with pair.running() as (master, slave):
        async with pair.master.client() as client:
            for _ in range(3):
                assert (await ask(client, send_request(b"x"))).code == ResponseCode.SUCCESS
        await trio.sleep(15)
        without = pull(code, offset, commit=None, suspend_ms=suspend_ms)
        for machine, broker in ((pair.master, master), (pair.slave, slave)):
            assert await consumed(machine, broker, without) is None
        commits = pull(code, offset, commit=1, suspend_ms=suspend_ms)
        assert await consumed(pair.slave, slave, commits) is None
        assert await consumed(pair.master, master, commits) == 1
        await trio.sleep(15)
        assert slave.offsets.query_offset(GROUP, "t", 0) == 1, "it has it from its master"
        later = pull(code, offset, commit=3, suspend_ms=suspend_ms)
        assert await consumed(pair.slave, slave, later) == 1
        own = encode_header(UpdateConsumerOffsetRequestHeader(GROUP, "t", 0, 2))
        async with pair.slave.client() as client:
            by_itself = await ask(client, RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=own))
        assert (by_itself.code, slave.offsets.query_offset(GROUP, "t", 0)) == (ResponseCode.SUCCESS, 2)
