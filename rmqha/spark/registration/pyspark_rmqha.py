"""What Spark finds by itself: of every installed top-level module ``pyspark_*`` it takes the DefaultSource.

This module is installed beside the package ``rmqha`` (see setup.cfg), so that ``format("rmqha")`` works with nothing
but ``pip install``.
"""

from rmqha.spark.datasource import RmqhaDataSource as DefaultSource

__all__ = ["DefaultSource"]
