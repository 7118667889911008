"""What rocketmq-exporter makes of a broker's runtime table (28), under its names: dashboards go on as they are.

Left out is what has no value here (thread pools, transient buffers, the page cache's lock); see docs/metrics.md.
Source: facts of rocketmq-exporter 0.0.3, RMQMetricsCollector.java.
"""

from collections.abc import Iterator
from typing import Final

from prometheus_client.metrics_core import Metric

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.stats_item import MINUTE
from rmqha.metrics.families import gauges

_PREFIX: Final = "rocketmq_brokeruntime_"
_NUMBERS: Final = {
    "msg_put_total_today_now": "msgPutTotalTodayNow",
    "msg_puttotal_todaymorning": "msgPutTotalTodayMorning",
    "msg_puttotal_yesterdaymorning": "msgPutTotalYesterdayMorning",
    "msg_gettotal_today_now": "msgGetTotalTodayNow",
    "msg_gettotal_todaymorning": "msgGetTotalTodayMorning",
    "msg_gettotal_yesterdaymorning": "msgGetTotalYesterdayMorning",
    "putmessage_times_total": "putMessageTimesTotal",
    "put_message_size_total": "putMessageSizeTotal",
    "put_message_average_size": "putMessageAverageSize",
    "putmessage_entire_time_max": "putMessageEntireTimeMax",
    "getmessage_entire_time_max": "getMessageEntireTimeMax",
    "put_latency_99": "putLatency99",
    "put_latency_999": "putLatency999",
}
_RATES: Final = {
    "put_tps": "putTps",
    "getfound_tps": "getFoundTps",
    "getmiss_tps": "getMissTps",
    "gettotal_tps": "getTotalTps",
    "gettransfered_tps": "getTransferedTps",
}
_SPANS: Final = ("10", "60", "600")
_BY_CLUSTER: Final = {"rocketmq_broker_tps": "BROKER_PUT_NUMS", "rocketmq_broker_qps": "BROKER_GET_NUMS"}


def runtime(broker: BrokerController) -> Iterator[Metric]:
    """The table's numbers, and the broker's rates of the last minute."""
    store, config = broker.store, broker.config
    labels = ["cluster", "brokerIP", "brokerHost"]
    who = (config.broker_cluster_name, broker.address, config.broker_ip1)
    table = store.stats.runtime_info() | dict(broker.stats.runtime_info())
    values = {name: float(table[key]) for name, key in _NUMBERS.items()}
    for name, key in _RATES.items():
        values |= {f"{name}{span}": float(rate) for span, rate in zip(_SPANS, table[key].split(), strict=True)}
    values |= {
        "commitlog_minoffset": store.min_offset,
        "commitlog_maxoffset": store.max_offset,
        "dispatch_behind_bytes": store.max_offset - store.reput_from_offset,
        "remain_howmanydata_toflush": store.max_offset - store.flushed_offset,
    }
    if (disk := store.cleaner.log_disk) is not None:
        values |= {
            "commitlog_disk_ratio": disk.used_percent / 100,
            "commitlogdir_capacity_total": disk.total,
            "commitlogdir_capacity_free": disk.available,
        }
    if (disk := store.cleaner.queues_disk) is not None:
        values["consumequeue_disk_ratio"] = disk.used_percent / 100
    for name, value in values.items():
        yield gauges(f"{_PREFIX}{name}", "As rocketmq-exporter has it.", labels, {who: value})
    for name, statistic in _BY_CLUSTER.items():
        found = broker.stats.find(statistic, config.broker_cluster_name)
        rate = broker.stats.snapshot(found[0], MINUTE).tps if found is not None else 0.0
        of_whom = (config.broker_cluster_name, broker.address, config.broker_name)
        yield gauges(
            name,
            "Messages a second, last minute, as rocketmq-exporter has it.",
            [*labels[:2], "broker"],
            {of_whom: rate},
        )
