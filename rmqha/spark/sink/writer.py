"""What Spark calls: the writers of a batch and of a stream. A task sends its partition; at least once.

Nothing can be taken back from a log: what a task that failed has sent stays, and comes again with Spark's next attempt.
So there is nothing to commit, and an abort only says so.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource as spark
from pyspark.sql.types import StructType

from rmqha.client import SessionCredentials, SyncProducer, TlsOptions, tls_network
from rmqha.errors import ConfigError
from rmqha.remoting.credentials import read_credentials
from rmqha.spark.executors import check_here, packages
from rmqha.spark.sink.options import SinkOptions
from rmqha.spark.sink.rows import ROW_ID, check_columns, read_rows
from rmqha.spark.sink.sender import Sender, Sent
from rmqha.transport import Network

logger = logging.getLogger("rmqha.spark")


@dataclass
class SentRows(spark.WriterCommitMessage):
    """What a task tells the driver."""

    sent: Sent


class _Partitions:
    """What both writers do. Pickled to the workers."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        """Check all that can be checked before anything is sent.

        Raises:
            ConfigError: the columns make no messages, or what is there is to be replaced.
        """
        if overwrite:
            raise ConfigError(
                "a topic is only appended to: write with mode('append'), stream with outputMode('append')"
            )
        check_columns(schema, topic=options.topic)
        self._options = options
        self._packages = packages()

    def send(self, batches: Iterator[pa.RecordBatch], write_id: str) -> SentRows:
        """One task's rows.

        Raises:
            MQClientError: a row was not sent.
            ConfigError: a file of the options cannot be used on this machine.
        """
        check_here(self._packages)
        options, task = self._options, TaskContext.get()
        assert task is not None
        rows = read_rows(batches, topic=options.topic, partition=f"{write_id}:{task.partitionId()}")
        credentials = read_credentials(options.credentials) if options.credentials else None
        with _producer(options, credentials) as producer:
            retry_for_s = options.retry_for_ms / 1000
            sender = Sender(producer, accept_stored=options.accept_stored, retry_for_s=retry_for_s)
            sender.send(rows)
        return SentRows(sender.sent)


class RmqhaWriter(spark.DataSourceArrowWriter):
    """``df.write``. All attempts of a task name its rows alike."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        self._partitions = _Partitions(options, schema, overwrite=overwrite)
        self._write_id = options.write_id or uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentRows:
        """One task's rows."""
        return self._partitions.send(iterator, self._write_id)

    def commit(self, messages: list[Any]) -> None:
        """All is sent."""
        _tell(messages, self._write_id)

    def abort(self, messages: list[Any]) -> None:
        """Some tasks failed for good."""
        _warn(messages, self._write_id)


class RmqhaStreamWriter(spark.DataSourceStreamArrowWriter):
    """``df.writeStream``. All attempts at a batch name its rows alike, after a restart from its checkpoint, too."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        self._partitions = _Partitions(options, schema, overwrite=overwrite)
        self._write_id = options.write_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentRows:
        """One task's rows."""
        task = TaskContext.get()
        assert task is not None
        write_id = self._write_id or task.getLocalProperty("sql.streaming.queryId")
        return self._partitions.send(iterator, f"{write_id}:{task.getLocalProperty('streaming.sql.batchId')}")

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name, here and below
        """All of the batch is sent."""
        _tell(messages, f"batch {batchId}")

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """The batch failed; a restart sends all of it again."""
        _warn(messages, f"batch {batchId}")


def _producer(options: SinkOptions, credentials: SessionCredentials | None) -> SyncProducer:
    network: Network | None = None
    if options.tls_trust or options.tls_cert:
        network = tls_network(TlsOptions(cert=options.tls_cert, key=options.tls_key, trust=options.tls_trust))
    return SyncProducer(options.addresses, group=options.producer_group, network=network, credentials=credentials)


def _tell(messages: list[Any], name: str) -> None:
    done = [message.sent for message in messages if isinstance(message, SentRows)]
    logger.info("sink.sent: %s: %d rows, %d sends repeated", name, *_sums(done))


def _warn(messages: list[Any], name: str) -> None:
    done = [message.sent for message in messages if isinstance(message, SentRows)]
    rows, _ = _sums(done)
    logger.warning(
        "sink.failed: %s: %d rows of %d finished tasks are in the log and stay, and more of others may be; written "
        "again they come twice, with the same property %s",
        name,
        rows,
        len(done),
        ROW_ID,
    )


def _sums(done: list[Sent]) -> tuple[int, int]:
    return sum(one.rows for one in done), sum(one.again for one in done)
