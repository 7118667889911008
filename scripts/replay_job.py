"""The replay job for spark-submit; takes the arguments of ``rmqha replay``.

spark-submit --master yarn scripts/replay_job.py hdfs:///logs/broker-a --out hdfs:///lake/orders --topic orders

Executors need the packages of rmqha[spark].
"""

import sys

from rmqha.cli.main import run

if __name__ == "__main__":
    sys.exit(run(["replay", *sys.argv[1:]]))
