"""The replay job for spark-submit; takes the arguments of ``rmqha replay``.

spark-submit --master spark://10.0.0.7:7077 scripts/replay_job.py /shared/broker-a --out /shared/orders --topic orders

What the machines need: docs/spark-clusters.md.
"""

import sys

from rmqha.cli.main import run

if __name__ == "__main__":
    sys.exit(run(["replay", *sys.argv[1:]]))
