"""Errors that come in groups."""

import pytest

from rmqha.errors import errors_in

FIRST, SECOND = KeyError("first"), OSError("second")


@pytest.mark.parametrize(
    ("raised", "wanted"),
    [
        (FIRST, [FIRST]),
        (BaseExceptionGroup("", [FIRST]), [FIRST]),
        (ExceptionGroup("", [ExceptionGroup("", [ExceptionGroup("", [FIRST])]), SECOND]), [FIRST, SECOND]),
    ],
)
def test_all_errors_of_a_group_come_in_their_order(raised: BaseException, wanted: list[BaseException]) -> None:
    assert errors_in(raised, LookupError, OSError) == wanted


def test_what_is_of_no_such_kind_is_raised() -> None:
    group = BaseExceptionGroup("", [FIRST, BaseExceptionGroup("", [SECOND, KeyboardInterrupt()])])
    with pytest.raises(BaseExceptionGroup) as caught:
        errors_in(group, KeyError, OSError)
    assert [type(error) for error in errors_in(caught.value, KeyboardInterrupt)] == [KeyboardInterrupt]
