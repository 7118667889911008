"""MasterLink: what a broker asks another of its log and of itself, by remoting.

Source: spec: ha §9 (request 28).
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final

import structlog
import trio

from rmqha.broker import options
from rmqha.broker.group import ReplicationGroup, member_of
from rmqha.broker.log_source import LogSource
from rmqha.broker.questions import ask, ask_keys, offset_of, open_link, status_of
from rmqha.broker.tables.tables_origin import TablesOrigin, read_tables_origin
from rmqha.codec.codes import STATUS_KEY, RequestCode
from rmqha.config import BrokerConfig, split_address
from rmqha.errors import RemoteProtocolError, RemotingError
from rmqha.ha.ha_client import BrokerStartingError, MasterAddress
from rmqha.remoting.client import RemotingClient
from rmqha.replication.group import GroupMember
from rmqha.replication.log_master import BrokerProcess, process_of, rocketmq_process_of
from rmqha.replication.master_session import LogRange
from rmqha.transport import Network

logger = structlog.get_logger()

HA_PORT_DISTANCE: Final = 1
REFUSED_ACCOUNT: Final = "AclException"
"""Stands in what a broker answers to whom it knows no account of."""
_NEEDS_ACCOUNT: Final = (
    ". Correct the account in the file of aclCredentialsPath here (without that key set it, and start again)"
)


class MasterLink:
    """Asks by short connections: a question every few seconds needs no connection of its own.

    Attributes:
        credentials: by which it signs what it asks, if the operator gave it any.
        log_source: knows whose log a slave copies.
        show_face: has the master see that this slave is there, before it is told by remoting why it takes nothing.
    """

    def __init__(
        self,
        network: Network,
        config: BrokerConfig,
        group: ReplicationGroup,
        *,
        ha_master: Callable[[], tuple[str, int] | None] = lambda: None,
        is_joined: Callable[[], bool] = bool,
    ) -> None:
        """Nobody is asked yet.

        Args:
            network: the door to other nodes.
            config: the operator's decisions.
            group: who belongs together.
            ha_master: the HA address from which a slave copies its log; None while there is none.
            is_joined: whether a log is connected there that goes on with the one here.
        """
        self._network: Final = network
        self._config: Final = config
        self._group: Final = group
        self._ha_master: Final = ha_master
        self._is_joined: Final = is_joined
        self.log_source: Final = LogSource(self._ask_process)
        self.show_face: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        self.credentials: Final = options.credentials(config)
        self.asked: BrokerProcess | None = None
        """The process that said last that it is of this group; None if it does not say which one it is."""
        self.asked_min_offset: int | None = None
        """Where its log began then."""
        self._untold: Final = dict[str, str]()
        """Why a broker that answers at an address did not say what its log holds."""

    @property
    def credentials_kept(self) -> str:
        """Why it signs by credentials that the file does not hold any more; empty: it does not."""
        return "" if self.credentials is None else self.credentials.not_read

    def open(self, address: str) -> AbstractAsyncContextManager[RemotingClient]:
        """A connection to the broker there, on which questions are signed."""
        return open_link(self._network, address, credentials=self.credentials)

    async def probe(self, ha_address: MasterAddress) -> LogRange | None:
        """What the log of the broker with this HA port holds; None if it does not say.

        Its remoting port is one below its HA port, as with RocketMQ; if nobody answers for it there, it may be
        ``masterAddress``. That one is not asked first: of a slave that follows a slave it is another broker's.

        Raises:
            BrokerStartingError: it cannot say yet.
        """
        return await self._probe(ha_address, self._group.introduce())

    async def introduce(self, ha_address: MasterAddress, ha_client_port: int) -> LogRange | None:
        """As :meth:`probe`, and tell a master of ours that the HA connection from this local port is ours.

        RocketMQ does not look at the fields that say so.
        """
        return await self._probe(ha_address, self._group.introduce(ha_client_port))

    async def _probe(self, ha_address: MasterAddress, fields: dict[str, str]) -> LogRange | None:
        config, found = self._config, None
        if ha_address.port > HA_PORT_DISTANCE:
            beside = f"{ha_address.host}:{ha_address.port - HA_PORT_DISTANCE}"
            found = await self._ask_range(beside, ha_address.port, fields=fields)
        if found is None and config.master_address and split_address(config.ha_master_address) == tuple(ha_address):
            found = await self._ask_range(config.master_address, ha_address.port, fields=fields)
        return found

    def why_untold(self, ha_address: MasterAddress) -> str:
        """Why the broker with this HA port did not say, when it was asked last, what its log holds."""
        beside = f"{ha_address.host}:{ha_address.port - HA_PORT_DISTANCE}"
        return self._untold.get(beside) or (
            f"nothing answers at {beside}, where its listenPort has to be, one below its HA port, or it lets this "
            "broker ask nothing"
        )

    async def _ask_range(self, address: str, ha_port: int, *, fields: dict[str, str]) -> LogRange | None:
        self._untold.pop(address, None)
        try:
            async with self.open(address) as client:
                answer = await ask(client, RequestCode.GET_BROKER_RUNTIME_INFO, fields)
                table = answer.get("table") or {}
                is_ours = STATUS_KEY in table
                status = status_of(table) if is_ours else {}
                _check_serving(address, status)
                if is_ours and (other_port := status["ha"]["port"]) != ha_port:
                    self._untold[address] = f"the broker that answers at {address} has HA port {other_port}"
                    return None
                member = self._on_told(status) if is_ours else await _ask_rocketmq(client)
            ends = offset_of(table["commitLogMinOffset"]), offset_of(table["commitLogMaxOffset"])
            return LogRange(*ends, checks_reports=is_ours, member=member)
        except BrokerStartingError:
            raise
        except (RemotingError, RemoteProtocolError, OSError, AttributeError, KeyError, TypeError, ValueError) as error:
            logger.debug("master_link.range_unknown", address=address, reason=str(error))
            if isinstance(error, RemoteProtocolError):
                told = _NEEDS_ACCOUNT if REFUSED_ACCOUNT in str(error) else ""
                self._untold[address] = f"{address} refuses this broker's questions: {error}{told}"
            return None

    async def is_member(self, address: str, self_id: str, group: str) -> bool:
        """Whether the broker of RocketMQ's at this address is that member of a DLedger group."""
        try:
            async with self.open(address) as client:
                keys = await ask_keys(client)
        except (RemotingError, RemoteProtocolError) as error:
            logger.debug("master_link.no_answer", address=address, reason=str(error))
            return False
        return (keys.get("dLegerSelfId"), keys.get("dLegerGroup")) == (self_id, group)

    async def who_is_no_master_yet(self, address: str) -> str | None:
        """Which member a broker of ours there is, if it says that it is no master, or starts; None if it does not.

        What cannot be learned here the next take-over of tables tells of.
        """
        status = await self._ask_status(address) or {}
        member = status.get("dledger")
        member_id = member.get("id") if isinstance(member, dict) else None
        return str(member_id or "") if status.get("is_master") is False or "starting" in status else None

    async def ask_tables_origin(self, address: str) -> TablesOrigin | None:
        """Whose tables a broker of the same DLedger group has; None if it does not answer, or is starting."""
        status = await self._ask_status(address)
        return None if status is None or "starting" in status else read_tables_origin(status)

    async def complain(self, address: str) -> None:
        """Tell the master whose log is not taken why, if there is any trouble; at ``address`` if it is not found."""
        if not self._group.trouble():
            return
        await self.show_face()
        told, ha_master = None, self._ha_master()
        with suppress(BrokerStartingError):
            told = None if ha_master is None else await self.probe(MasterAddress(*ha_master))
        if told is None:
            await self._ask_status(address)

    async def _ask_status(self, address: str) -> dict[str, Any] | None:
        """What a broker of ours says of itself; empty of one of RocketMQ's, None if there is no answer to use."""
        try:
            async with self.open(address) as client:
                fields = self._group.complain()
                table = (await ask(client, RequestCode.GET_BROKER_RUNTIME_INFO, fields)).get("table") or {}
            return status_of(table) if STATUS_KEY in table else {}
        except (RemotingError, RemoteProtocolError, OSError, AttributeError, TypeError, ValueError) as error:
            logger.debug("master_link.no_answer", address=address, reason=str(error))
            return None

    async def check_group(self, client: RemotingClient) -> TablesOrigin:
        """Whether this broker is of this group, and whose tables it has.

        It need not be that whose log is copied, which is asked for itself: it may be the master of that one.

        Raises:
            RemoteProtocolError: it is of another group: its offsets would hide messages. Or it is starting, and has yet
                to look for what it may lack.
        """
        said = self._group.complain()
        table = (await ask(client, RequestCode.GET_BROKER_RUNTIME_INFO, said)).get("table") or {}
        try:
            status = status_of(table) if STATUS_KEY in table else {}
            keys = {} if status else await ask_keys(client)
            member = self._on_told(status) if status else _member_of(keys)
            process = process_of(table, status) if status else rocketmq_process_of(table, keys)
            min_offset = offset_of(table["commitLogMinOffset"]) if "commitLogMinOffset" in table else None
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RemoteProtocolError(f"it does not say who it is: {error!r:.100}") from None
        if member is not None and (why := self._group.why_apart(member)):
            raise RemoteProtocolError(f"this is no broker of this group: {why}")
        ha_address, is_joined = self._ha_master(), self._is_joined()
        await self.log_source.check(client.address, process, ha_address=ha_address, is_joined=is_joined)
        self.asked, self.asked_min_offset = process, min_offset
        if (found := self._group.complain()) and found != said:  # who waits for this slave asks its master
            await ask(client, RequestCode.GET_BROKER_RUNTIME_INFO, found)
        if "starting" in status:
            raise RemoteProtocolError("the broker is starting: it has yet to look whether its tables are its group's")
        return read_tables_origin(status)

    async def _ask_process(self, address: str) -> BrokerProcess | None:
        """Who the broker there is; None if it does not say."""
        try:
            async with self.open(address) as client:
                table = (await ask(client, RequestCode.GET_BROKER_RUNTIME_INFO)).get("table") or {}
                if STATUS_KEY in table:
                    return process_of(table, status_of(table))
                return rocketmq_process_of(table, await ask_keys(client))
        except (RemotingError, RemoteProtocolError, OSError, AttributeError, TypeError, ValueError) as error:
            logger.debug("master_link.no_answer", address=address, reason=str(error))
            return None

    def _on_told(self, status: dict[str, Any]) -> GroupMember:
        return self._group.on_told(status, now=trio.current_time())


def _check_serving(address: str, status: dict[str, Any]) -> None:
    if "starting" in status:
        raise BrokerStartingError(f"the broker at {address} is starting: {status['starting'].get('what')}")


async def _ask_rocketmq(client: RemotingClient) -> GroupMember | None:
    """Who a RocketMQ broker is, by its configuration; None if it does not say."""
    return _member_of(await ask_keys(client))


def _member_of(keys: dict[str, str]) -> GroupMember | None:
    return member_of(keys) if keys else None
