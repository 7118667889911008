"""From when on and until when a certificate is valid: as another library reads it, and who is told when it is not."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

import pytest
import structlog.testing
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from rmqha import certificates
from rmqha.certificate_validity import valid_between
from rmqha.certificates import Certificates, TlsOptions, Validity, first_to_expire, not_valid_yet, validity
from rmqha.cli.broker_conf import certificate_notes
from rmqha.cli.doctor_host import check_certificates
from rmqha.cli.finding import FAIL, OK, WARN
from rmqha.cli.pages import Page
from rmqha.cli.verdict import judge
from rmqha.process import tell_of_expiry, warn_of_expiry
from tests.cli.facts import connection, master
from tests.settings import config
from tests.test_tls import Pki

trustme = pytest.importorskip("trustme", reason="trustme is in the extra [dev]")

DAY_S = 86_400
PEM = "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n"


@pytest.fixture(autouse=True)
def _nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "_in_use", WeakSet())


@pytest.mark.parametrize(
    "end",
    [
        datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(2050, 1, 1, tzinfo=UTC),
        datetime(2001, 2, 3, 4, 5, tzinfo=UTC),
    ],
)
def test_both_kinds_of_time_are_read(end: datetime) -> None:
    """RFC 5280: UTCTime until 2049, GeneralizedTime behind it."""
    begin = end.replace(year=end.year - 1, month=7)
    issued = trustme.CA().issue_cert("a", not_before=begin, not_after=end)
    assert valid_between(issued.cert_chain_pems[0].bytes().decode()) == (begin.timestamp(), end.timestamp())


def in_year(year: int) -> datetime:
    return datetime(year, 1, 1, tzinfo=UTC)


def test_of_a_chain_the_last_to_begin_and_the_first_to_end_count() -> None:
    authority = trustme.CA()
    pems = [
        authority.issue_cert(name, not_before=in_year(begin), not_after=in_year(end))
        .cert_chain_pems[0]
        .bytes()
        .decode()
        for name, begin, end in (("a", 2019, 2031), ("b", 2021, 2029), ("c", 2017, 2033))
    ]
    assert valid_between("".join(pems)) == (in_year(2021).timestamp(), in_year(2029).timestamp())


@given(st.one_of(st.text(max_size=50), st.binary(max_size=80).map(lambda raw: PEM.format(raw.hex()))))
def test_what_is_no_certificate_has_no_times(pem: str) -> None:
    assert valid_between(pem) is None


def test_a_file_that_is_cut_or_gone_has_none(tmp_path: Path) -> None:
    options = Pki(tmp_path).options("a")
    whole = Path(options.cert).read_text()
    for size in range(0, len(whole), 7):
        valid_between(whole[:size] + "\n-----END CERTIFICATE-----")
    assert validity("") is validity(str(tmp_path / "gone")) is None


def put_in_place(options: TlsOptions, renewed: Any) -> None:
    Path(options.cert).write_bytes(renewed.cert_chain_pems[0].bytes())
    Path(options.key).write_bytes(renewed.private_key_pem.bytes())


async def test_the_certificate_that_ends_first_is_the_processs_and_is_read_again(tmp_path: Path) -> None:
    authority = Pki(tmp_path)
    first, second = authority.options("a"), authority.options("b")
    kept = [Certificates(first), Certificates(second)]
    soon = datetime.now(tz=UTC).replace(microsecond=0) + timedelta(days=5)
    renewed = authority.ca.issue_cert("b", not_after=soon)
    put_in_place(second, renewed)
    await certificates.read_again()
    ends = soon.timestamp()
    first_end = first_to_expire()
    assert first_end is not None
    assert (first_end.path, first_end.ends_s) == (second.cert, ends)
    with structlog.testing.capture_logs() as logs:
        warn_of_expiry(now_s=ends - 15 * DAY_S)
        warn_of_expiry(now_s=ends - 13 * DAY_S)
        warn_of_expiry(now_s=ends + DAY_S)
    assert [(one["event"], one["log_level"], one["path"], one["days_left"]) for one in logs] == [
        ("certificates.expiring", "warning", second.cert, 13.0),
        ("certificates.expired", "error", second.cert, -1.0),
    ]
    del kept


@pytest.mark.parametrize("days", [15.0, 2.5])
async def test_a_process_that_runs_on_tells_it_once_a_day(
    days: float, tmp_path: Path, autojump_clock: MockClock
) -> None:
    """It told of it at its start alone, which may be months ago."""
    authority = Pki(tmp_path)
    options = authority.options("a")
    kept = Certificates(options)
    first = first_to_expire()
    assert first is not None
    begun_at, wall = trio.current_time(), first.ends_s - days * DAY_S
    with structlog.testing.capture_logs() as logs, trio.move_on_after((days + 1.5) * DAY_S):
        await tell_of_expiry(now_s=lambda: wall + trio.current_time() - begun_at)
    told = [(one["event"], round(one["days_left"])) for one in logs]
    assert told[-2:] == [("certificates.expired", 0), ("certificates.expired", -1)]
    assert [event for event, _ in told[:-2]] == ["certificates.expiring"] * int(min(days, 14))
    del kept


def test_without_tls_nothing_ends() -> None:
    assert first_to_expire() is None
    with structlog.testing.capture_logs() as logs:
        warn_of_expiry(now_s=0.0)
    assert logs == []


@pytest.mark.parametrize(("days", "level"), [(4, "ok"), (2, "degraded"), (-1, "degraded")])
def test_status_tells_it_three_days_before(days: int, level: str) -> None:
    verdict = judge(master(connection(), certificate={"path": "/c.pem", "expires_in_s": days * DAY_S}))
    assert (verdict.level, verdict.in_sync) == (level, True)
    assert all(reason.endswith(f"renew it, then send SIGHUP; see {Page.CERTIFICATES}") for reason in verdict.reasons)
    if days < 0:
        assert "/c.pem ended 1.0 days ago" in verdict.reasons[0]


@pytest.mark.parametrize(("days", "level"), [(40, OK), (20, WARN), (-2, FAIL)])
def test_doctor_tells_it_thirty_days_before(tmp_path: Path, days: int, level: str) -> None:
    now = datetime.now(tz=UTC)
    issued = trustme.CA().issue_cert(
        "a", not_before=now - timedelta(days=9), not_after=now + timedelta(days=days, hours=1)
    )
    path = tmp_path / "a.pem"
    issued.private_key_and_cert_chain_pem.write_to_path(str(path))
    (found,) = check_certificates(
        config(haTlsMode="enforcing", haTlsTrustCertPath=str(path), haTlsCertPath=str(path), haTlsKeyPath=str(path))
    )
    assert (found.level, bool(found.next)) == (level, level != OK)


@pytest.mark.parametrize("ending", ["tls", "haTls"])
def test_doctor_looks_at_the_certificates_of_both_ports(tmp_path: Path, ending: str) -> None:
    """Of each with its own: one that is good says nothing of the other."""
    now = datetime.now(tz=UTC)
    authority, keys = trustme.CA(), dict[str, str]()
    for port, days in ((ending, 2), ("haTls" if ending == "tls" else "tls", 90)):
        path = str(tmp_path / f"{port}.pem")
        issued = authority.issue_cert("a", not_after=now + timedelta(days=days, hours=1))
        issued.private_key_and_cert_chain_pem.write_to_path(path)
        keys |= {f"{port}Mode": "enforcing"} | {f"{port}{of}Path": path for of in ("Cert", "Key", "TrustCert")}
    told = {one.what: one.level for one in check_certificates(config(**keys))}
    wrong = f"{tmp_path}/{ending}.pem ends in 2 days"
    assert (len(told), [what for what, level in told.items() if level != OK]) == (2, [wrong])


BEGINS: Final = datetime.now(tz=UTC).replace(microsecond=0) + timedelta(days=2)


@pytest.fixture
def early(tmp_path: Path) -> dict[str, str]:
    """Keys of a configuration: of a certificate from a machine whose clock is two days ahead."""
    path = str(tmp_path / "early.pem")
    issued = trustme.CA().issue_cert("a", not_before=BEGINS, not_after=BEGINS + timedelta(days=90))
    issued.private_key_and_cert_chain_pem.write_to_path(path)
    return {"tlsMode": "enforcing"} | {f"tls{of}Path": path for of in ("Cert", "Key", "TrustCert")}


def test_one_that_is_not_valid_yet_is_told_before_the_start(early: dict[str, str]) -> None:
    found = {one.level: one.what for one in check_certificates(config(**early))}
    assert "early.pem is valid in 47 h only" in found[FAIL]
    (note,) = certificate_notes(config(**early), now_s=BEGINS.timestamp() - DAY_S)
    assert "early.pem is valid in 24 h only: others refuse it" in note
    assert certificate_notes(config(**early), now_s=BEGINS.timestamp()) == ()


def test_and_while_it_is_shown(early: dict[str, str]) -> None:
    """At a start and a SIGHUP; not once it is valid."""
    options, begins_s = TlsOptions(early["tlsCertPath"], early["tlsKeyPath"]), BEGINS.timestamp()
    kept = Certificates(options)
    assert not_valid_yet(now_s=begins_s - 1) == Validity(options.cert, begins_s, begins_s + 90 * DAY_S)
    assert not_valid_yet(now_s=begins_s) is None
    with structlog.testing.capture_logs() as logs:
        warn_of_expiry(now_s=begins_s - 1)
        warn_of_expiry(now_s=begins_s)
    ((event, level, valid_from),) = ((one["event"], one["log_level"], one["valid_from"]) for one in logs)
    assert (event, level, valid_from) == ("certificates.not_valid_yet", "error", BEGINS.isoformat())
    del kept
