"""What an account may do."""

import pytest

from rmqha.broker.acl.needed_permissions import Need
from rmqha.broker.acl.permission import ADMIN_CODES, DENY, PUB, SUB, parse_perm
from rmqha.broker.acl.plain_access_resource import PlainAccessResource
from rmqha.broker.acl.remote_address_strategy import RemoteAddressStrategy
from rmqha.codec.codes import RequestCode

NOWHERE = RemoteAddressStrategy(None)
SEND = int(RequestCode.SEND_MESSAGE_V2)
PERMS = {"both": PUB | SUB, "in": PUB, "out": SUB, "none": DENY, "%RETRY%g": SUB, "%RETRY%h": DENY}
ACCOUNT = PlainAccessResource("someone", "12345678", NOWHERE, default_topic_perm=PUB, perms=PERMS)


@pytest.mark.parametrize(
    ("resource", "perm", "granted"),
    [
        ("both", PUB, True), ("both", SUB, True), ("in", PUB, True), ("in", SUB, False), ("out", SUB, True),
        ("out", PUB, False), ("none", PUB, False), ("none", SUB, False), ("other", PUB, True), ("other", SUB, False),
        ("%RETRY%g", SUB, True), ("%RETRY%h", SUB, False), ("%RETRY%other", SUB, False),
        ("RMQ_SYS_TRACE_TOPIC", SUB, False), ("SCHEDULE_TOPIC_XXXX", PUB, False), ("%DLQ%g", SUB, True),
        ("%DLQ%h", SUB, False), ("%DLQ%other", PUB, False),
    ],
)  # fmt: skip
def test_what_is_listed_counts_and_else_the_default(resource: str, perm: int, *, granted: bool) -> None:
    assert (ACCOUNT.why_not(SEND, [Need(resource, perm)]) == "") is granted


def test_one_permission_that_lacks_is_enough() -> None:
    reason = ACCOUNT.why_not(SEND, [Need("both", SUB), Need("%RETRY%h", SUB)])
    assert reason == "accessKey=someone has no SUB permission for group:h"


def test_everybody_may_send_traces() -> None:
    nobody = PlainAccessResource("someone", "12345678", NOWHERE)
    assert nobody.why_not(SEND, [Need("RMQ_SYS_TRACE_TOPIC", PUB)]) == ""
    assert nobody.why_not(SEND, [Need("t", PUB)])


@pytest.mark.parametrize("code", sorted(ADMIN_CODES))
def test_what_is_for_administrators_no_other_account_may(code: int) -> None:
    assert "administrators" in ACCOUNT.why_not(code, [])
    assert PlainAccessResource("someone", "12345678", NOWHERE, admin=True).why_not(code, []) == ""


def test_an_administrator_may_all_unless_permissions_are_listed() -> None:
    needed = [Need("none", PUB), Need("%RETRY%h", SUB)]
    assert PlainAccessResource("someone", "12345678", NOWHERE, admin=True).why_not(SEND, needed) == ""
    assert PlainAccessResource("someone", "12345678", NOWHERE, admin=True, perms=PERMS).why_not(SEND, needed)


def test_the_names_of_permissions() -> None:
    found = [parse_perm(name) for name in ("DENY", " PUB ", "SUB", "PUB|SUB", "SUB|PUB", "pub", "", None)]
    assert found == [DENY, PUB, SUB, PUB | SUB, PUB | SUB, None, None, DENY]
