"""Errors that come in groups, and from another process."""

import pickle

import pytest

from rmqha.errors import CorruptLogError, MQBrokerError, RemotingTimeoutError, RmqhaError, StoreWriteError, errors_in

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


@pytest.mark.parametrize(
    "error",
    [
        MQBrokerError(14, "not now"),
        RemotingTimeoutError("10.0.0.1:10911", "no answer in time"),
        CorruptLogError(7, "zeros"),
        StoreWriteError(OSError(28, "full"), operation="pwrite", path="/store"),
    ],
)
def test_an_error_comes_out_of_another_process_as_it_went_in(error: RmqhaError) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))


def test_a_peers_words_are_not_repeated_at_any_length() -> None:
    """16 MiB of them were in each line that a consumer logged."""
    error = MQBrokerError(1, "x" * 100_000)
    assert len(str(error)) < 1_100
    assert len(error.remark) == 100_000
    assert str(MQBrokerError(1, "y" * 1000)).endswith("y" * 1000)
