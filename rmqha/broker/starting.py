"""A broker before it serves: it says how far it is, in its log and to ``rmqha status``, and puts everybody else off.

Recovery and catch-up may take minutes. Meanwhile the clients' port is open: a closed one looks like a broker that is
down, or hangs.
"""

import json
from collections.abc import Callable
from typing import Any, Final

import structlog
import trio

from rmqha import __version__
from rmqha.codec import java_json
from rmqha.codec.codes import STATUS_KEY, RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.usual.sends import Request
from rmqha.config import BrokerConfig
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher, refuse_unknown
from rmqha.remoting.fence import turn_away
from rmqha.store.recovery_progress import RecoveryProgress

logger = structlog.get_logger()

_TELL_EVERY_S: Final = 5.0


class Starting:
    """Answers for a broker that is not ready yet.

    The table that answers 28 holds no offsets: nobody may take those of a log that is not recovered for its ends.
    """

    def __init__(self, config: BrokerConfig, progress: RecoveryProgress, *, clock: Callable[[], float]) -> None:
        self._config = config
        self._progress = progress
        self._clock = clock
        self._begun_at = clock()
        self._finished = trio.Event()

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Answer everything, until :meth:`finish`."""
        dispatcher.register(RequestCode.GET_BROKER_RUNTIME_INFO, self.get_broker_runtime_info)
        dispatcher.otherwise = self.put_off

    def finish(self, dispatcher: RequestDispatcher) -> None:
        """Put nobody off any more: the real processors have registered, for 28 as well."""
        dispatcher.otherwise = refuse_unknown
        self.give_up()

    def give_up(self) -> None:
        """The broker stops before it has served anybody: tell no more how far it is."""
        self._finished.set()

    def get_broker_runtime_info(self, _connection: Connection, _request: RemotingCommand) -> RemotingCommand:
        """28: who this is, and how far it is."""
        document = {STATUS_KEY: json.dumps(self.document(), separators=(",", ":"))}
        return RemotingCommand(ResponseCode.SUCCESS, body=java_json.dumps({"table": document}).encode())

    def put_off(self, connection: Connection, requests: list[Request]) -> None:
        """Refuse as RocketMQ's clients understand it: ask again, or ask another broker."""
        for request in requests:
            remark = f"the broker is starting: {self._progress.describe()}"
            turn_away(connection, request, ResponseCode.SERVICE_NOT_AVAILABLE, remark=remark)

    def document(self) -> dict[str, Any]:
        """What `rmqha status` shows."""
        config, progress = self._config, self._progress
        return {
            "version": __version__,
            "broker_name": config.broker_name,
            "broker_cluster_name": config.broker_cluster_name,
            "broker_id": config.broker_id,
            "role": "CANDIDATE" if config.enable_dleger_commit_log else config.broker_role.value,
            "starting": {
                "what": progress.what,
                "done_bytes": progress.done_bytes,
                "total_bytes": progress.total_bytes,
                "for_s": round(self._clock() - self._begun_at, 1),
            },
        }

    async def tell(self) -> None:
        """Log that it starts, and how far it is every few seconds, until :meth:`finish`."""
        while not self._finished.is_set():
            progress = self._progress
            logger.info(
                "broker.starting",
                doing=progress.what,
                done_bytes=progress.done_bytes,
                total_bytes=progress.total_bytes,
                for_s=round(self._clock() - self._begun_at, 1),
            )
            with trio.move_on_after(_TELL_EVERY_S):
                await self._finished.wait()
