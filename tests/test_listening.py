"""A port that cannot be had names its key in the configuration, its address, and what to do."""

import errno
import os

import pytest

from rmqha.errors import errors_in
from rmqha.listening import listening_by
from tests.broker.machines import Machine
from tests.sim.sim_net import SimNet


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.EADDRINUSE, "Stop what listens there ('ss -tanp' says what), or change haListenPort"),
        (errno.EADDRNOTAVAIL, "That is no address of this machine: correct haBindAddress"),
        (errno.EACCES, "change haListenPort"),
        (errno.EMFILE, "cannot listen on 10.0.0.1:10912"),
    ],
)
def test_an_error_names_the_key_the_address_and_what_to_do(code: int, advice: str) -> None:
    told = "cannot listen on 10.0.0.1:10912: " + os.strerror(code)
    with pytest.raises(OSError, match=f"haListenPort: {told}") as caught, listening_by("haListenPort", "haBindAddress"):
        raise OSError(code, told)
    assert caught.value.errno == code
    assert advice in str(caught.value.strerror)


@pytest.mark.parametrize(
    ("port", "what", "key"),
    [
        (10911, "listenPort: ", "listenPort"),
        (10909, "listenPort - 2, which clients use, too: ", "listenPort"),
        (10912, "haListenPort: ", "haListenPort"),
    ],
)
async def test_a_broker_that_cannot_have_a_port_names_its_key(port: int, what: str, key: str) -> None:
    """It said no more than the address, and which of four ports that was each had to find out."""
    machine = Machine(SimNet(), "10.0.0.1", {"brokerRole": "ASYNC_MASTER"})
    await machine.net.host("10.0.0.1").mount().listen("10.0.0.1", port)
    with pytest.raises(ExceptionGroup) as caught:
        async with machine.broker():
            pass
    (error,) = errors_in(caught.value, OSError)
    assert str(error).startswith(f"[Errno {errno.EADDRINUSE}] {what}")
    assert str(error).endswith(f"or change {key}")
