"""Long answers: none is made for a client that takes none, and such a client keeps nobody else from a turn."""

import gc
import weakref
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import trio
import trio.testing

from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.answers_in_turns import AnswersInTurns


class Client:
    """A Connection, as far as answers go, which has taken what it was sent when that is set."""

    takes_answers = True

    def __init__(self, nursery: trio.Nursery, host: str) -> None:
        self.peer, self.start_soon = f"{host}:1", nursery.start_soon
        self.has_taken = trio.Event()
        self.answered = 0

    async def wait_taken(self) -> None:
        await self.has_taken.wait()

    def let_go(self, request: RemotingCommand) -> RemotingCommand:
        return request

    def fenced(self, _request: RemotingCommand) -> AbstractContextManager[None]:
        return nullcontext()

    def send_reply(self, _request: RemotingCommand, _response: RemotingCommand) -> None:
        self.answered += 1


async def test_an_answer_is_made_once_the_one_before_is_taken(nursery: trio.Nursery) -> None:
    """Each may have megabytes, and many may be asked for before the first one fills the line."""
    answers, made = AnswersInTurns(), list[str]()
    deaf, other = Client(nursery, "10.0.0.1"), Client(nursery, "10.0.0.2")
    other.has_taken.set()

    async def make(who: str) -> RemotingCommand:
        made.append(who)
        return RemotingCommand(0)

    for name, client in (("deaf", deaf), ("deaf", deaf), ("other", other)):
        answers.answer(client, RemotingCommand(1), partial(make, name))  # type: ignore[arg-type]
        await trio.testing.wait_all_tasks_blocked()  # trio begins tasks in any order
    assert (made, deaf.answered, other.answered) == (["other"], 0, 1)
    deaf.has_taken.set()
    await trio.testing.wait_all_tasks_blocked()
    assert (made, deaf.answered) == (["other", "deaf", "deaf"], 2)


async def test_of_clients_that_were_answered_none_is_kept(nursery: trio.Nursery) -> None:
    """They come and go by the thousand, each with a connection of its own."""
    answers, clients = AnswersInTurns(), [Client(nursery, f"10.0.0.{number}") for number in range(3)]

    async def make() -> RemotingCommand:
        return RemotingCommand(0)

    for client in clients:
        client.has_taken.set()
        answers.answer(client, RemotingCommand(1), make)  # type: ignore[arg-type]
    await trio.testing.wait_all_tasks_blocked()
    assert [client.answered for client in clients] == [1, 1, 1]
    kept = [weakref.ref(client) for client in clients]
    del client
    clients.clear()
    gc.collect()
    assert [one() for one in kept] == [None, None, None]
