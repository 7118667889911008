"""Signatures: those that RocketMQ's clients make are right, and no others."""

import pytest

from rmqha.codec.acl import ACCESS_KEY, SIGNATURE, SessionCredentials, cal_signature, is_signed
from rmqha.codec.remoting import RemotingCommand, SerializeType, decode_frames

SECRET = "12345678"
QUERY = {"AccessKey": "RocketMQ", "beginTimestamp": "0", "endTimestamp": "9", "key": "k", "maxNum": "32", "topic": "T"}
OF_QUERY = "9FIgLU0dkOhBjfuuMIMULECDi6o="
OF_UNIQUE_QUERY = "9Bv88E3hdQtq8AU5ek1jvyxHjOY="
"""The same with _UNIQUE_KEY_QUERY=false among the fields. Both: AclSigner of RocketMQ 4.9.8."""


def is_right(fields: dict[str, str], body: bytes = b"", *, secret_key: str = SECRET) -> bool:
    return is_signed(fields, body, secret_key=secret_key)


def test_a_signature_is_the_one_that_rocketmq_makes() -> None:
    assert cal_signature(QUERY, b"", secret_key=SECRET) == OF_QUERY
    assert cal_signature(QUERY | {"_UNIQUE_KEY_QUERY": "false"}, b"", secret_key=SECRET) == OF_UNIQUE_QUERY


def test_the_flag_of_a_query_may_be_signed_as_clients_do_or_not_as_brokers_expect() -> None:
    flagged = QUERY | {"_UNIQUE_KEY_QUERY": "false"}
    assert is_right(flagged | {SIGNATURE: OF_UNIQUE_QUERY})
    assert is_right(flagged | {SIGNATURE: OF_QUERY})


def test_a_security_token_may_be_signed_as_javas_clients_do_or_not_as_gos() -> None:
    fields = QUERY | {"SecurityToken": "token"}
    for signed in (fields, QUERY):
        assert is_right(fields | {SIGNATURE: cal_signature(signed, b"", secret_key=SECRET)})


@pytest.mark.parametrize("signature", ["", OF_QUERY[:-1], OF_QUERY.lower(), OF_UNIQUE_QUERY, "\u2713", "=" * 100_000])
def test_any_other_signature_is_wrong(signature: str) -> None:
    assert not is_right(QUERY | {SIGNATURE: signature})


def test_no_signature_is_wrong() -> None:
    assert not is_right(QUERY)


def test_whatever_is_changed_on_the_way_is_noticed() -> None:
    fields = QUERY | {SIGNATURE: cal_signature(QUERY, b"body", secret_key=SECRET)}
    assert is_right(fields, b"body")
    assert not is_right(fields, b"Body")
    assert not is_right(fields | {"topic": "U"}, b"body")
    assert not is_right(fields | {"more": "x"}, b"body")
    assert not is_right(fields, b"body", secret_key="12345679")


@pytest.mark.parametrize("form", SerializeType)
def test_what_is_signed_is_right_after_its_way_over_the_wire_and_can_be_signed_again(form: SerializeType) -> None:
    credentials = SessionCredentials("someone", SECRET, "token")
    fields = {"topic": "caf\u00e9 \U0001f680", "_x": "1", "A": "2"}
    request = RemotingCommand(11, ext_fields=fields, body=b"b", serialize=form)
    for _ in range(2):
        credentials.sign(request)
        (arrived,), _ = decode_frames(request.encode())
        assert arrived.ext_fields[ACCESS_KEY] == "someone"
        assert is_right(arrived.ext_fields, arrived.body)
    assert ACCESS_KEY not in fields


def test_encoded_requests_are_signed_one_by_one_and_stay_what_they_are() -> None:
    frames = b"".join(
        RemotingCommand(310, n, ext_fields={"b": "t"}, body=b"%d" % n, serialize=1).encode() for n in (1, 2)
    )
    signed, _ = decode_frames(SessionCredentials("someone", SECRET).sign_frames(frames))
    assert [(one.opaque, one.body, one.code, one.serialize) for one in signed] == [(1, b"1", 310, 1), (2, b"2", 310, 1)]
    assert all(is_right(one.ext_fields, one.body) for one in signed)


def test_nobody_is_shown_a_secret() -> None:
    assert SECRET not in repr(SessionCredentials("someone", SECRET, SECRET))
