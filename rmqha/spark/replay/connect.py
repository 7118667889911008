"""The job through Spark Connect: a client without Java hands the tasks to a server's session."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from rmqha.errors import ConfigError, StoreError
from rmqha.spark.context import first_line
from rmqha.spark.executors import Check, guarded
from rmqha.spark.replay.task import TaskResult, run_task

if TYPE_CHECKING:
    import pyarrow as pa


_GONE: Final = "NO_ACTIVE_SESSION"


class ConnectDoor:
    """``mapInArrow`` over a range of numbers: there are no RDDs."""

    def __init__(self, name: str, url: str | None) -> None:
        """Take the active session, or begin one at the URL.

        Raises:
            ConfigError: packages for Connect are missing.
            StoreError: the server does not answer.
        """
        try:
            from pyspark.errors import PySparkException  # noqa: PLC0415 - an extra
            from pyspark.sql.connect.session import SparkSession  # noqa: PLC0415
        except ImportError as error:
            raise ConfigError(f"Spark Connect needs more packages: pip install 'pyspark[connect]' ({error})") from None
        builder = SparkSession.builder.appName(name)
        builder = builder.remote(url) if url else builder
        try:
            try:
                self._session = builder.getOrCreate()
            except PySparkException as error:
                if _GONE not in str(error):
                    raise
                self._session = builder.getOrCreate()  # that of before was its server's, which has been restarted
        except (PySparkException, OSError) as error:
            raise StoreError(f"Spark Connect did not begin: {first_line(error)}") from error
        self.master = url or "Connect"
        self._finished = 0
        handler: Any = self._on_progress
        self._session.registerProgressHandler(handler)

    def ask(self, check: Check) -> list[str]:
        """As Door's: a range has as many parts as the server has cores, unless told."""
        numbers = self._session.range(1 << 20)
        return [row.answer for row in numbers.mapInArrow(_answering(check), "answer string").collect()]

    def collect(self, items: list[bytes], group: str, check: Check) -> list[TaskResult]:
        """As Door's."""
        self._session.addTag(group)
        self._finished = 0
        numbers = self._session.range(0, len(items), 1, len(items))
        rows = numbers.mapInArrow(_working(items, guarded(run_task, check)), "result binary").collect()
        return [pickle.loads(row.result) for row in rows]  # noqa: S301 - of our own tasks

    def finished(self, _group: str) -> int:
        """As Door's."""
        return self._finished

    def cancel(self, group: str) -> None:
        """As Door's."""
        self._session.interruptTag(group)

    def _on_progress(self, stages: Iterable[Any] | None, **_: object) -> None:
        self._finished = sum(stage.num_completed_tasks for stage in stages or ())


def _answering(check: Check) -> Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]:
    def answer(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        import pyarrow  # noqa: PLC0415 - travels whole, as in rmqha.spark.executors

        for _ in batches:
            pass
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array([check()], pyarrow.string())], ["answer"])

    return answer


def _working(
    items: list[bytes], work: Callable[[Iterable[bytes]], Iterator[Any]]
) -> Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]:
    def run(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        import pickle  # noqa: PLC0415

        import pyarrow  # noqa: PLC0415

        for batch in batches:
            mine = [items[number] for number in batch.column(0).to_pylist()]
            results = [pickle.dumps(result) for result in work(mine)]
            yield pyarrow.RecordBatch.from_arrays([pyarrow.array(results, pyarrow.binary())], ["result"])

    return run
