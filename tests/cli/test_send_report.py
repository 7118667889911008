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
