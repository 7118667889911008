"""Accounts that administrators change from afar (50 to 54): durable, as a whole, only where the operator wants it."""

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from rmqha.broker.acl.plain_acl_edit import SIZE_MAX, Change, replace_file, update_access_config
from rmqha.broker.acl.plain_permission_manager import PlainPermissionManager
from rmqha.codec.acl import SessionCredentials
from rmqha.codec.acl_headers import CreateAccessConfigRequestHeader
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import ConfigError
from rmqha.remoting.client import RemotingClient
from tests.broker.acl.files import account, home_with
from tests.broker.acl.test_acl_broker import ADMIN, FORGER, PRODUCER, code_of, machine
from tests.broker.machines import Machine, ask, send_request

FILE = "# of the operator\naccounts:\n" + "".join(
    [
        account("producer", "topicPerms: [t=PUB]", "whiteRemoteAddress: 10.1.1.1"),
        account("administrator", "admin: true"),
        account("12345678", "topicPerms: [t=SUB]"),
    ]
)
UPDATE, DELETE = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, RequestCode.DELETE_ACL_CONFIG
VERSION, WHITE = RequestCode.GET_BROKER_CLUSTER_ACL_INFO, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
CODES = (UPDATE, DELETE, VERSION, WHITE, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
NEW = {"accessKey": "newcomer", "secretKey": "secret of its own", "topicPerms": "t=PUB,u=SUB", "admin": "false"}
NEWCOMER = SessionCredentials("newcomer", "secret of its own")


@pytest.fixture
def home(tmp_path: Path) -> str:
    return home_with(tmp_path, FILE)


def open_to_changes(home: str) -> Machine:
    return machine(home, aclRemoteChangesEnable="true")


async def changed(client: RemotingClient, code: int, fields: dict[str, str]) -> RemotingCommand:
    """The answer to an administrator."""
    request = RemotingCommand(code, ext_fields=fields)
    ADMIN.sign(request)
    return await ask(client, request)


def files_of(home: str) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(Path(home, "conf").rglob("*")) if path.is_file()}


async def test_nothing_is_changed_unless_the_operator_wants_it(home: str) -> None:
    before = files_of(home)
    one = machine(home)
    async with one.broker(), one.client() as client:
        for code in CODES:
            answer = await changed(client, code, NEW | {"globalWhiteAddrs": "*"})
            assert answer.code == ResponseCode.NO_PERMISSION
            assert "takes no accounts from remote" in (answer.remark or "")
    assert files_of(home) == before


async def test_only_administrators_change_accounts_and_nobody_is_shown_them(home: str) -> None:
    before, one = files_of(home), open_to_changes(home)
    async with one.broker(), one.client() as client:
        for credentials in (None, PRODUCER, FORGER):
            for code in CODES:
                request = RemotingCommand(code, ext_fields=NEW | {"globalWhiteAddrs": "*"})
                assert await code_of(client, request, credentials) == ResponseCode.SYSTEM_ERROR
        answer = await changed(client, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, {})
        assert (answer.code, answer.body) == (ResponseCode.NO_PERMISSION, b"")
        assert "shows its accounts to nobody" in (answer.remark or "")
    assert files_of(home) == before


@pytest.mark.parametrize(("admin", "code"), [("false", ResponseCode.SYSTEM_ERROR), ("true", ResponseCode.SUCCESS)])
async def test_an_address_of_its_own_lets_an_account_change_accounts_only_if_it_is_an_administrator(
    tmp_path: Path, admin: str, code: int
) -> None:
    """Who names it from there signs nothing: an account that is none would make itself one, from everywhere."""
    text = "accounts:\n" + account("neighbour", "whiteRemoteAddress: '*'", f"admin: {admin}")
    one = open_to_changes(home_with(tmp_path, text))
    unsigned = {"accessKey": "neighbour", "AccessKey": "neighbour"}
    async with one.broker(), one.client() as client:
        assert await code_of(client, RemotingCommand(UPDATE, ext_fields=unsigned | {"admin": "true"}), None) == code
        white = RemotingCommand(WHITE, ext_fields=unsigned | {"globalWhiteAddrs": "10.9.9.9"})
        assert await code_of(client, white, None) == code
        delete = RemotingCommand(DELETE, ext_fields=unsigned)
        assert await code_of(client, delete, None) == code
    assert ("neighbour" in files_of(str(tmp_path))[f"{tmp_path}/conf/plain_acl.yml"].decode()) is (admin == "false")


async def test_an_account_that_is_made_counts_at_once_and_is_in_the_file(home: str) -> None:
    one = open_to_changes(home)
    async with one.broker(), one.client() as client:
        assert await code_of(client, send_request(b"x"), NEWCOMER) == ResponseCode.SYSTEM_ERROR
        assert (await changed(client, UPDATE, NEW)).code == ResponseCode.SUCCESS
        assert await code_of(client, send_request(b"x"), NEWCOMER) == ResponseCode.SUCCESS
        assert await code_of(client, send_request(b"x", topic="u"), NEWCOMER) == ResponseCode.SYSTEM_ERROR
        assert await code_of(client, send_request(b"x"), PRODUCER) == ResponseCode.SUCCESS
        assert [name for name in files_of(home) if not name.endswith("plain_acl.yml")] == []
    read_again = PlainPermissionManager(home)
    assert all(read_again.is_account(key) for key in ("newcomer", "producer", "administrator", "12345678"))


async def test_what_a_change_does_not_name_stays_but_for_admin(home: str) -> None:
    """RocketMQ's mqadmin says admin=false where nothing is said."""
    one = open_to_changes(home)
    async with one.broker() as broker, one.client() as client:
        fields = {"accessKey": "producer", "topicPerms": "u=PUB", "defaultTopicPerm": "DENY"}
        assert (await changed(client, UPDATE, fields)).code == ResponseCode.SUCCESS
        assert await code_of(client, send_request(b"x"), PRODUCER) == ResponseCode.SYSTEM_ERROR
        assert await code_of(client, send_request(b"x", topic="u"), PRODUCER) == ResponseCode.SUCCESS
        assert broker.access.permissions is not None
        assert (await changed(client, UPDATE, {"accessKey": "12345678", "admin": "true"})).code == ResponseCode.SUCCESS
        text = files_of(home)[f"{home}/conf/plain_acl.yml"].decode()
        assert "whiteRemoteAddress: 10.1.1.1" in text
        assert text.count("12345678") == 4  # three secrets, and one key that was a number and is a text now
        assert text.index("producer") < text.index("administrator") < text.index("admin: true", 200)


async def test_the_last_permission_of_a_list_can_be_taken_away(home: str) -> None:
    """What is named and empty is not what is not named."""
    one = open_to_changes(home)
    async with one.broker(), one.client() as client:
        assert await code_of(client, send_request(b"x"), PRODUCER) == ResponseCode.SUCCESS
        fields = {"accessKey": "producer", "topicPerms": ""}
        assert (await changed(client, UPDATE, fields)).code == ResponseCode.SUCCESS
        assert await code_of(client, send_request(b"x"), PRODUCER) == ResponseCode.SYSTEM_ERROR
    assert files_of(home)[f"{home}/conf/plain_acl.yml"].decode().count("t=PUB") == 0


async def test_an_account_is_changed_where_it_is_and_files_count_their_changes(home: str) -> None:
    beside = home_with(Path(home), "accounts:\n" + account("elsewhere"), name="acl/team.yml")
    one, default = open_to_changes(home), f"{home}/conf/plain_acl.yml"
    async with one.broker(), one.client() as client:
        for _ in range(2):
            fields = {"accessKey": "elsewhere", "defaultTopicPerm": "PUB"}
            assert (await changed(client, UPDATE, fields)).code == ResponseCode.SUCCESS
        answer = await changed(client, VERSION, {})
        assert answer.code == ResponseCode.SUCCESS
        assert answer.ext_fields | {"version": "", "allAclFileVersion": ""} == {
            "version": "",
            "allAclFileVersion": "",
            "brokerName": "broker-a",
            "brokerAddr": "10.0.0.1:10911",
            "clusterName": "DefaultCluster",
        }
        assert json.loads(answer.ext_fields["version"])["counter"] == 0
        counters = {name: one["counter"] for name, one in json.loads(answer.ext_fields["allAclFileVersion"]).items()}
        assert counters == {f"{beside}/conf/acl/team.yml": 2, default: 0}
        assert b"# of the operator" in files_of(home)[default]


async def test_an_account_that_is_deleted_may_nothing_from_then_on(home: str) -> None:
    one = open_to_changes(home)
    async with one.broker(), one.client() as client:
        assert (await changed(client, DELETE, {"accessKey": "producer"})).code == ResponseCode.SUCCESS
        assert await code_of(client, send_request(b"x"), PRODUCER) == ResponseCode.SYSTEM_ERROR
        answer = await changed(client, DELETE, {"accessKey": "producer"})
        assert (answer.code, answer.remark) == (ResponseCode.DELETE_ACL_CONFIG_FAILED, "there is no account producer")
    assert not PlainPermissionManager(home).is_account("producer")


async def test_who_is_no_administrator_any_more_when_it_is_its_turn_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked before, and waited, could bring back the account that was just taken away."""
    home = home_with(tmp_path, FILE + account("overthrown", "admin: true"))
    one, deputy, codes = open_to_changes(home), SessionCredentials("overthrown", "12345678"), dict[int, int]()
    is_turn, goes_on = trio.Event(), trio.Event()
    async with one.broker() as broker, one.client() as client, one.client() as other, trio.open_nursery() as nursery:
        permissions = broker.access.permissions
        assert permissions is not None
        change = permissions.change

        async def change_later(wanted: Change, *, now_ms: int) -> None:
            is_turn.set()
            await goes_on.wait()
            await change(wanted, now_ms=now_ms)

        async def ask_for(client: RemotingClient, code: int, fields: dict[str, str], who: SessionCredentials) -> None:
            codes[code] = await code_of(client, RemotingCommand(code, ext_fields=fields), who)

        monkeypatch.setattr(permissions, "change", change_later)
        nursery.start_soon(ask_for, client, DELETE, {"accessKey": "overthrown"}, ADMIN)
        await is_turn.wait()
        nursery.start_soon(ask_for, other, UPDATE, NEW, deputy)
        assert broker.server is not None
        while sum(one.in_flight.requests for one in broker.server.connections) < 2:
            await trio.lowlevel.checkpoint()
        goes_on.set()
    assert codes == {DELETE: ResponseCode.SUCCESS, UPDATE: ResponseCode.SYSTEM_ERROR}
    assert "newcomer" not in files_of(home)[f"{home}/conf/plain_acl.yml"].decode()


async def test_a_change_is_told_when_it_counts(home: str) -> None:
    """Pulls that are held for an account end with its permissions, and not with the next look at the files."""
    permissions, told = PlainPermissionManager(home), list[bool]()
    permissions.on_read = lambda: told.append(permissions.is_account("newcomer"))
    header = CreateAccessConfigRequestHeader("newcomer", "secret of its own")
    await permissions.change(update_access_config(header), now_ms=1)
    assert told == [True]
    await permissions.change(update_access_config(header), now_ms=2)
    assert told == [True, True]


async def test_white_addresses_are_those_that_are_named(home: str) -> None:
    one = open_to_changes(home)
    async with one.broker() as broker, one.client() as client:
        assert broker.access.permissions is not None
        is_white = broker.access.permissions.is_white
        fields = {"globalWhiteAddrs": "10.2.0.{1,2}, 10.3.*.*"}
        assert (await changed(client, WHITE, fields)).code == ResponseCode.SUCCESS
        assert [is_white(host) for host in ("10.2.0.1", "10.2.0.2", "10.2.0.3", "10.3.4.5")] == [
            True,
            True,
            False,
            True,
        ]
        fields = {"globalWhiteAddrs": "", "aclFileFullPath": f"{home}/conf/plain_acl.yml"}
        assert (await changed(client, WHITE, fields)).code == ResponseCode.SUCCESS
        assert not is_white("10.2.0.1")


WRONG: list[tuple[int, dict[str, Any], str]] = [
    (UPDATE, {"accessKey": "short", "secretKey": "12345678"}, "must have more than 6 characters"),
    (UPDATE, {"accessKey": "nosecret"}, "has no secretKey"),
    (UPDATE, NEW | {"topicPerms": "t=PUBB"}, "is none of DENY"),
    (UPDATE, NEW | {"groupPerms": "SUB"}, "is not of the form name=permission"),
    (UPDATE, NEW | {"defaultGroupPerm": "ALL"}, "is none of DENY"),
    (UPDATE, NEW | {"whiteRemoteAddress": "10.0.0"}, "has four parts"),
    (UPDATE, {"accessKey": "intwofiles", "admin": "true"}, "leave it in one of them"),
    (DELETE, {"accessKey": "intwofiles"}, "leave it in one of them"),
    (UPDATE, NEW | {"secretKey": "secret of\x85its own"}, "cannot hold"),
    (WHITE, {"globalWhiteAddrs": "10.0.0.300"}, "is no address"),
    (WHITE, {"globalWhiteAddrs": "*", "aclFileFullPath": "/etc/passwd"}, "is no file of accounts"),
]


@pytest.mark.parametrize(("code", "fields", "reason"), WRONG, ids=[reason for _, _, reason in WRONG])
async def test_a_change_that_no_broker_could_read_changes_nothing(
    home: str, code: int, fields: dict[str, str], reason: str
) -> None:
    for name in ("acl/a.yml", "acl/b.yml"):
        home_with(Path(home), "accounts:\n" + account("intwofiles"), name=name)
    before, one = files_of(home), open_to_changes(home)
    async with one.broker(), one.client() as client:
        answer = await changed(client, code, fields)
        assert answer.code in {209, 210, 211}
        assert reason in (answer.remark or "")
        assert "secret of its own" not in (answer.remark or "")
        assert await code_of(client, send_request(b"x"), PRODUCER) == ResponseCode.SUCCESS
    assert files_of(home) == before


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        yield


@pytest.mark.usefixtures("full_disk")
async def test_a_disk_that_takes_no_file_leaves_the_one_that_is_there(home: str) -> None:
    before, one = files_of(home), open_to_changes(home)
    async with one.broker(), one.client() as client:
        answer = await changed(client, UPDATE, NEW)
        assert (answer.code, "No space left" in (answer.remark or "")) == (209, True)
        assert await code_of(client, send_request(b"x"), NEWCOMER) == ResponseCode.SYSTEM_ERROR
    assert files_of(home) == before


def test_what_somebody_else_writes_at_the_same_time_is_not_lost(home: str) -> None:
    path = Path(home, "conf/plain_acl.yml")
    theirs = FILE + account("fromeditor")

    def edit(_document: dict[str, Any]) -> None:
        path.write_text(theirs)

    with pytest.raises(ConfigError, match="somebody else"):
        replace_file(home, path, edit, now_ms=1)
    assert files_of(home) == {str(path): theirs.encode()}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("accounts: 5\n", "accounts is no list"),
        ("accounts: true\n", "accounts is no list"),
        ("accounts: {producer: {}}\n", "accounts is no list"),
        ("accounts: &a [*a]\n", "leads back to itself"),
        ("accounts: [{accessKey: newcomer, topicPerms: &b [*b]}]\n", "leads back to itself"),
    ],
)
async def test_a_file_that_somebody_is_just_breaking_is_not_changed(home: str, text: str, reason: str) -> None:
    one = open_to_changes(home)
    async with one.broker(), one.client() as client:
        home_with(Path(home), text)
        answer = await changed(client, UPDATE, NEW)
        assert (answer.code, reason in (answer.remark or "")) == (209, True), answer.remark
        assert (await changed(client, DELETE, {"accessKey": "producer"})).code == 210
    assert files_of(home) == {f"{home}/conf/plain_acl.yml": text.encode()}


async def test_of_many_mistakes_some_are_told(home: str) -> None:
    one = open_to_changes(home)
    async with one.broker(), one.client() as client:
        answer = await changed(client, WHITE, {"globalWhiteAddrs": "a.b.c," * 15_000})
        assert (answer.code, "is no address" in (answer.remark or "")) == (211, True)
        assert len(answer.remark or "") <= 2000


def test_a_file_does_not_grow_without_end(home: str) -> None:
    before = files_of(home)
    with pytest.raises(ConfigError, match="at most 1048576 are written"):
        replace_file(home, Path(home, "conf/plain_acl.yml"), lambda one: one.update(note="x" * SIZE_MAX), now_ms=1)
    assert files_of(home) == before


def test_mode_and_link_stay(home: str) -> None:
    path = Path(home, "conf/plain_acl.yml")
    real = path.rename(Path(home, "real.yml"))
    path.symlink_to(real)
    real.chmod(0o640)
    replace_file(home, path, lambda document: document.update(globalWhiteRemoteAddresses=["10.0.0.1"]), now_ms=1)
    assert path.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert PlainPermissionManager(home).is_white("10.0.0.1")


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other groups")
def test_a_directory_that_gives_its_files_to_a_group_does_not_show_it_the_secrets(home: str) -> None:
    path = Path(home, "conf/plain_acl.yml")
    path.chmod(0o640)
    os.chown(path.parent, -1, 12345)
    path.parent.chmod(0o2770)
    replace_file(home, path, lambda document: document.update(globalWhiteRemoteAddresses=["10.0.0.1"]), now_ms=1)
    assert (path.stat().st_gid, path.stat().st_mode & 0o777) == (os.getegid(), 0o640)


def test_a_first_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    home = home_with(tmp_path, "accounts:\n" + account("elsewhere"), name="acl/team.yml")
    path = tmp_path / "conf/plain_acl.yml"
    replace_file(home, path, lambda document: document.update(globalWhiteRemoteAddresses=["10.0.0.1"]), now_ms=1)
    assert path.stat().st_mode & 0o777 == 0o600
    assert PlainPermissionManager(home).versions[str(path)] == {"counter": 1, "timestamp": 1}


def test_changes_from_afar_need_accounts() -> None:
    with pytest.raises(ConfigError, match="aclRemoteChangesEnable=true needs aclEnable=true"):
        machine("", aclEnable="false", aclRemoteChangesEnable="true").controller()
