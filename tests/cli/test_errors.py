"""What to do next about a broker that cannot be asked."""

import pytest

from rmqha.cli.errors import UnreachableError
from rmqha.codec.strangers import describe_answer


@pytest.mark.parametrize(
    ("why", "told", "not_told"),
    [
        (describe_answer(b"\x15\x03\x03\x00\x02") or "", "RMQHA_TLS_TRUST", "is it running"),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert", "RMQHA_TLS_CERT and RMQHA_TLS_KEY", "compare"),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate has expired", "compare its certificate", "RMQHA_TLS_CERT"),
        ("Connection refused", "is it running", "TLS"),
    ],
)
def test_of_tls_the_setting_that_is_missing_is_named(why: str, told: str, not_told: str) -> None:
    error = UnreachableError("b:10911", why)
    assert told in error.hint
    assert not_told not in error.hint
    assert error.is_broker is ("running" not in error.hint)
