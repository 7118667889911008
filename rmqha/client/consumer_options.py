"""ConsumerOptions: how a consumer works, where RocketMQ's defaults do not fit."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """What :func:`~rmqha.client.open_consumer` takes besides topic, group and place.

    For example::

        options = ConsumerOptions(batch_size=100, auto_commit_s=5)
        with SyncConsumer("127.0.0.1:10911", "orders", group="billing", options=options) as consumer:
            for message in consumer.poll(timeout_s=5):
                print(message.body)

    Nothing is committed without ``auto_commit_s``, unless the program does it itself.
    """

    batch_size: int = 32
    """Messages asked for at once in each queue."""
    suspend_timeout_s: float = 15.0
    """How long a broker may hold a pull that finds nothing; the answer is awaited 10 s longer."""
    timeout_s: float = 3.0
    """For every other request."""
    connect_timeout_s: float = 3.0
    body_size_max: int = 64 * 1024 * 1024
    """Larger bodies are not decompressed."""
    auto_commit_s: float | None = None
    """Commit so often, and when the consumer closes, what was handed out before the latest poll. None is never."""
    named_only: bool = False
    """Read from the brokers at the given addresses, the first one that answers, and from none that these name. A slave
    with ``masterAddress`` is read itself, not its master. Name servers are of no use then."""
