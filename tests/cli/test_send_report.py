import pytest

from rmqha.cli.send_report import SendReport


def test_counts_and_percentiles() -> None:
    report = SendReport()
    for number in range(1, 101):
        report.add("SEND_OK", latency_s=number / 1000, body_size=10)
    assert report.all_ok
    figures = report.as_dict(elapsed_s=2.0)
    assert (figures["messages"], figures["messagesPerSecond"], figures["bytesPerSecond"]) == (100, 50.0, 500)
    assert (figures["p50Ms"], figures["p99Ms"], figures["maxMs"]) == (51.0, 100.0, 100.0)
    assert "SEND_OK" in report.as_text(elapsed_s=2.0)
    assert "50 msg/s" in report.as_text(elapsed_s=2.0)


def test_one_other_answer_is_enough_to_say_so() -> None:
    report = SendReport()
    report.add("SEND_OK", latency_s=0.001, body_size=1)
    report.add("FLUSH_SLAVE_TIMEOUT", latency_s=3.0, body_size=1)
    assert not report.all_ok
    assert report.as_dict(elapsed_s=1)["statuses"] == {"SEND_OK": 1, "FLUSH_SLAVE_TIMEOUT": 1}


@pytest.mark.parametrize("elapsed_s", [0.0, 1.0])
def test_nothing_sent_is_no_division_by_zero(elapsed_s: float) -> None:
    report = SendReport()
    assert report.as_text(elapsed_s=elapsed_s) == "nothing was sent"
    assert report.as_dict(elapsed_s=elapsed_s)["p50Ms"] is None


def test_what_is_stored_and_not_safe_is_explained_with_what_next() -> None:
    """There was a count of FLUSH_SLAVE_TIMEOUT, and no word on what it means."""
    report = SendReport()
    report.add("SEND_OK", latency_s=0.001, body_size=1)
    report.add("SERVICE_NOT_AVAILABLE", latency_s=0.001, body_size=1)
    assert report.advice(("h:10911",)) == ""
    for status in ("FLUSH_SLAVE_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"):
        report.add(status, latency_s=3.0, body_size=1)
    assert report.advice(("h:10911", "i:10911")) == (
        "3 are stored, and not as safe as SEND_OK promises: too few slaves follow, no slave acknowledged in time. "
        "Next: 'rmqha status -b h:10911 -b i:10911' says why; docs/operations.md, 'Sends are not answered SEND_OK'"
    )
    report.add("SEND_OK", latency_s=3.0, body_size=1, broker="good:10911")
    report.add("FLUSH_DISK_TIMEOUT", latency_s=3.0, body_size=1, broker="late:10911")
    assert "'rmqha status -b late:10911' says why" in report.advice(("nameserver:9876",))
    assert "the disk did not confirm in time" in report.advice(("h:10911",))
