"""plain_acl.yml, as RocketMQ reads it; what is damaged is said with its place."""

import sys
from pathlib import Path

import pytest

from rmqha.broker.acl.permission import DENY, PUB, SUB
from rmqha.broker.acl.plain_acl import read_plain_acl
from rmqha.broker.acl.remote_address_strategy import parts_of
from rmqha.errors import ConfigError
from tests.broker.acl.files import account, home_with

ACCOUNTS = "accounts:\n"


def test_the_file_that_rocketmq_brings(tmp_path: Path) -> None:
    acl = read_plain_acl(home_with(tmp_path))
    assert acl.notes == ()
    assert acl.is_white(parts_of("10.10.103.7"))
    assert not acl.is_white(parts_of("192.168.1.7"))
    one, two = acl.accounts["RocketMQ"], acl.accounts["rocketmq2"]
    assert (one.secret_key, one.admin, one.default_topic_perm, one.default_group_perm) == ("12345678", False, DENY, SUB)
    assert one.perms == {
        "%RETRY%groupA": DENY,
        "%RETRY%groupB": PUB | SUB,
        "%RETRY%groupC": SUB,
        "topicA": DENY,
        "topicB": PUB | SUB,
        "topicC": SUB,
    }
    assert two.admin
    assert two.perms == {}
    assert two.white_remote_address.match(parts_of("192.168.1.200"))
    assert not one.white_remote_address.match(parts_of("192.168.1.200"))


def test_accounts_of_a_directory_count_first_and_tools_yml_holds_none(tmp_path: Path) -> None:
    home_with(tmp_path, ACCOUNTS + account("someone", "admin: true"), name="acl/one.yml")
    home_with(tmp_path, ACCOUNTS + account("another"), name="acl/deeper/two.yaml")
    home_with(tmp_path, "accessKey: tools00\nsecretKey: 12345678\n", name="acl/tools.yml")
    acl = read_plain_acl(home_with(tmp_path, ACCOUNTS + account("someone") + account("third00")))
    assert acl.accounts.keys() == {"someone", "another", "third00"}
    assert acl.accounts["someone"].admin
    assert [note for note in acl.notes if "someone is there twice" in note]


def test_a_blank_file_beside_others_is_what_rocketmq_makes_of_none(tmp_path: Path) -> None:
    home_with(tmp_path, ACCOUNTS + account("someone"), name="acl/one.yml")
    assert read_plain_acl(home_with(tmp_path, "")).accounts.keys() == {"someone"}


def test_an_account_as_rocketmq_itself_writes_it(tmp_path: Path) -> None:
    text = (
        "accounts:\n- !!org.apache.rocketmq.common.PlainAccessConfig\n  accessKey: someone\n  secretKey: '12345678'\n"
    )
    assert read_plain_acl(home_with(tmp_path, text)).accounts.keys() == {"someone"}


def test_what_may_be_a_mistake_is_noted_and_grants_nothing(tmp_path: Path) -> None:
    text = ACCOUNTS + account("someone", "topicPerms: [a=pub]", "defaultTopicPerm: ALL", "topicPerm: [b=PUB]")
    acl = read_plain_acl(home_with(tmp_path, text))
    assert (acl.accounts["someone"].perms, acl.accounts["someone"].default_topic_perm) == ({"a": DENY}, DENY)
    assert len(acl.notes) == 3
    assert all("plain_acl.yml:" in note for note in acl.notes)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "accounts: [",
        "- accessKey: someone\n  secretKey: 12345678\n",
        "accounts: someone",
        "accounts: [someone]",
        ACCOUNTS + "  - accessKey: someone\n",
        ACCOUNTS + "  - accessKey: someone\n    secretKey: 123456\n",
        ACCOUNTS + "  - accessKey: someone\n    secretKey: 1.5e10\n",
        ACCOUNTS + account("someone", "admin: perhaps"),
        ACCOUNTS + account("someone", "topicPerms: a=PUB"),
        ACCOUNTS + account("someone", "topicPerms: [a]"),
        ACCOUNTS + account("someone", "topicPerms: [a=PUB=SUB]"),
        ACCOUNTS + account("someone", "whiteRemoteAddress: 10.0.0"),
        "globalWhiteRemoteAddresses: [10.0.0]",
        "globalWhiteRemoteAddresses: 10.0.0.1",
        "a: !!int ''",
        "a: !!bool x",
        "a: !!timestamp x",
        "a: !!python/object/apply:os.system ['true']",
        b"\xff\xfe\xfd",
        "a: &a [*a]\n? [" + "[" * 5000,
    ],
)
def test_what_cannot_be_read_is_refused_with_the_files_name(tmp_path: Path, text: str | bytes) -> None:
    with pytest.raises(ConfigError, match=r"plain_acl\.yml"):
        read_plain_acl(home_with(tmp_path, text))


def test_all_that_is_wrong_is_told_at_once_each_with_its_line(tmp_path: Path) -> None:
    """The first problem was told alone, and some without a line."""
    text = """globalWhiteRemoteAddresses: 10.0.0.1
accounts:
  - accessKey: short
    secretKey: 12345678
    admin: perhaps
  - accessKey: someone
    secretKey: 1.5
    topicPerms:
      - a=PUB
      - b
    groupPerms: g=SUB
  - nobody
  - accessKey: another
    secretKey: '1234567'
    whiteRemoteAddress: 10.0.0
  - accessKey: someone2
"""
    home_with(tmp_path, "accounts: [", name="acl/other.yml")
    with pytest.raises(ConfigError) as raised:
        read_plain_acl(home_with(tmp_path, text))
    told = [line.replace(str(tmp_path / "conf"), "") for line in raised.value.problems]
    assert told == [
        told[0],
        "/plain_acl.yml:1: globalWhiteRemoteAddresses is no list",
        "/plain_acl.yml:3: accessKey 'short' must have more than 6 characters",
        "/plain_acl.yml:5: admin of the account short is neither true nor false",
        "/plain_acl.yml:7: secretKey: a number with a point is no text: use quotation marks",
        "/plain_acl.yml:10: topicPerms: 'b' is not of the form name=permission",
        "/plain_acl.yml:11: groupPerms is no list",
        "/plain_acl.yml:12: this is no account, which has accessKey and secretKey",
        told[8],
        "/plain_acl.yml:16: the account someone2 has no secretKey",
    ]
    assert told[0].startswith("/acl/other.yml:1: no YAML: it ends or goes on where it cannot")
    assert told[8].startswith("/plain_acl.yml:15: white addresses of the account another: ")


def test_keys_that_nobody_reads_are_named_with_their_lines_and_what_may_be_meant(tmp_path: Path) -> None:
    text = (
        "acounts: []\naccounts:\n  - accessKey: someone\n    secretKey: 12345678\n    topicPerm: [a=PUB]\n"
        "    admin: true\n    admin: false\n    colour: red\n"
    )
    acl = read_plain_acl(home_with(tmp_path, text))
    who = "the account someone"
    assert [note.partition("plain_acl.yml:")[2] for note in acl.notes] == [
        "1: 'acounts' of the file is no key of RocketMQ's, and without effect; nearest known key: accounts",
        f"5: 'topicPerm' of {who} is no key of RocketMQ's, and without effect; nearest known key: topicPerms",
        f"8: 'colour' of {who} is no key of RocketMQ's, and without effect",
        f"7: admin of {who} is there twice: the last one counts",
    ]
    assert not acl.accounts["someone"].admin


def test_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nobody could be served"):
        read_plain_acl(str(tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        "'S3CRET",
        "!S3CRET",
        "!S3CRET x",
        "!S3CRET!x y",
        "!<S3CRET",
        "*S3CRET",
        "&S3CRET a\n    x: &S3CRET b\n    y: *S3CRET0",
        "%S3CRET",
        "@S3CRET",
        "`S3CRET",
        "S3CRET: S3CRET",
        "[S3CRET",
        "{S3CRET: }}",
        '"\\S3CRET"',
        "!!int S3CRET",
        "!!binary S3CRET\u00e4",
        "!!python/name:S3CRET",
        "2020-99-99S3CRET: 1\n  S3CRET",
        "|S3CRET",
        "{[S3CRET]: 1}",
    ],
)
def test_no_error_shows_a_secret(tmp_path: Path, text: str) -> None:
    """What a secret begins with may be YAML's own: a tag, an alias, an anchor, a directive."""
    with pytest.raises(ConfigError, match=r"plain_acl\.yml") as raised:
        read_plain_acl(home_with(tmp_path, f"accounts:\n  - accessKey: someone\n    secretKey: {text}\n"))
    assert "S3CRET" not in str(raised.value)
    assert raised.value.__context__ is None or raised.value.__suppress_context__


def test_no_note_shows_a_secret(tmp_path: Path) -> None:
    """A blank is missing behind the colon, so all of it is a key."""
    lines = "{accessKey: someone, secretKey: 12345678, secretKey:S3CRET, secretKey=S3CRET: 1, sekretKey: S3CRET}"
    acl = read_plain_acl(home_with(tmp_path, f"accounts:\n  - {lines}\nsecretKey:S3CRET: 1\n"))
    assert "S3CRET" not in str(acl.notes)
    assert [note for note in acl.notes if "'sekretKey'" in note]
    assert "12345678" not in repr(acl.accounts)


def test_damage_is_told_with_its_line(tmp_path: Path) -> None:
    damages = {
        "a: !tag x": (1, "a tag"),
        "a: b\nb: *x": (2, "an alias"),
        "a: b\n\nc: [": (3, "ends"),
        "\n@": (2, "a sign"),
    }
    for text, (line, reason) in damages.items():
        with pytest.raises(ConfigError, match=rf"plain_acl\.yml:{line}: no YAML: .*{reason}"):
            read_plain_acl(home_with(tmp_path, text))


def test_without_pyyaml_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigError, match=r"pip install 'rmqha\[acl\]'"):
        read_plain_acl(home_with(tmp_path))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("accounts: []\n", "there is no account: nobody is served"),
        ("globalWhiteRemoteAddresses: [10.0.0.1]\n", "only who comes from globalWhiteRemoteAddresses is served"),
    ],
)
def test_no_accounts_are_told(text: str, told: str, tmp_path: Path) -> None:
    acl = read_plain_acl(home_with(tmp_path, text))
    assert not acl.accounts
    assert [note for note in acl.notes if told in note] == list(acl.notes)
