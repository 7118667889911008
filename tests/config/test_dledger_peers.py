import pytest

from rmqha.config.dledger_peers import check_name, parse_peers


def test_an_id_ends_at_the_first_dash() -> None:
    peers = parse_peers("n0-localhost:20911; n1-my-host-1:20912 ;b-[::1]:20913;")
    assert peers == {"n0": "localhost:20911", "n1": "my-host-1:20912", "b": "[::1]:20913"}
    assert list(peers) == ["n0", "n1", "b"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "names no member"),
        (" ; ", "names no member"),
        ("localhost:20911", "'localhost:20911' is not ID-HOST:PORT"),
        ("-localhost:20911", "is not ID-HOST:PORT"),
        ("n0-", "is not ID-HOST:PORT"),
        ("n0-localhost", "'n0-localhost' is not ID-HOST:PORT: 'localhost' is not host:port"),
        ("n0-localhost:0", "is not host:port"),
        ("n0-h:1,n1-h:2", "is not ID-HOST:PORT"),
        ("n0-h:1;n0-h:2", "two members have the id n0: h:1 and h:2"),
        ("n0-h:1;n1-h:1", "two members have the address h:1"),
        ("n0/../../etc-h:1", "'n0/../../etc' holds '/'"),
        ("..-h:1", "would lead out of the store's directory"),
        ("n\x07-h:1", "cannot be printed"),
    ],
)
def test_what_is_no_list_of_members_is_refused_in_words(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_peers(text)


@pytest.mark.parametrize("name", ["", "a/b", "..", "a..b", "/", "a\\b", "a\0b", "a\nb"])
def test_a_name_that_becomes_a_path_leads_nowhere_else(name: str) -> None:
    with pytest.raises(ValueError, match=r"empty|out of the store|cannot be printed"):
        check_name(name)


def test_other_names_are_names() -> None:
    for name in ("n0", "broker-a_1.x", "Gruppe Ä"):
        assert check_name(name) == name
