"""Calls from a thread that blocks, against a real server."""

from __future__ import annotations

import copy
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import strom
from strom.client.cluster import forks
from strom.client.cluster.address import Address
from strom.client.cluster.direct_caller import DirectCaller
from strom.client.cluster.direct_calls import DirectCalls
from strom.errors import (
    AuthenticationFailed,
    ConnectionClosed,
    DatabaseNotFound,
    Disconnected,
    NotLeader,
    RequestTimeout,
    SecurityDisabled,
    TableNotFound,
    UnsupportedVersion,
)
from strom.protocol.api_keys import DATABASE_EXISTS, GET_DATABASE_INFO, Api, Role
from strom.protocol.messages.databases import (
    DatabaseExistsRequest,
    DatabaseExistsResponse,
    GetDatabaseInfoRequest,
)
from strom.runtime.streams import TcpStream
from strom.runtime.world import World
from strom.testing.process import ServerProcess

WORLD = World.system()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    with ServerProcess(tmp_path_factory.mktemp("direct")) as server:
        host, _, port = server.address.rpartition(":")
        yield Address(host, int(port))


def connect(address: Address) -> DirectCaller:
    return DirectCaller.connect(WORLD, address, user=None, password=None, timeout_s=10.0)


def exists(caller: DirectCaller | DirectCalls, name: str, address: Address | None = None) -> bool | None:
    if isinstance(caller, DirectCaller):
        return caller.call(DATABASE_EXISTS, DatabaseExistsRequest(database_name=name)).exists
    assert address is not None
    return caller.attempt([address], lambda lent: exists(lent, name))


def test_a_client_that_closes_takes_the_connections_along_that_threads_dialled(address: Address) -> None:
    with strom.connect(str(address)) as db:
        caller = db._session.cluster.dial(address)
        assert exists(caller, "fluss")
    assert isinstance(caller.broken, ConnectionClosed)


def test_a_call_is_answered(address: Address) -> None:
    caller = connect(address)
    assert exists(caller, "fluss")
    assert not exists(caller, "nowhere")
    assert caller.requests == 3
    caller.close()


def test_answers_may_be_taken_in_another_order_than_they_come(address: Address) -> None:
    caller = connect(address)
    names = ("fluss", "nowhere")
    for take_early in (
        lambda asked: caller.finish(DATABASE_EXISTS, asked, timeout_s=5.0),
        lambda asked: caller.finish_now(DATABASE_EXISTS, asked),
    ):
        first, second = (
            caller.start(DATABASE_EXISTS, DatabaseExistsRequest(database_name=name)) for name in names
        )
        assert not caller.finish(DATABASE_EXISTS, second, timeout_s=10.0).exists
        found = take_early(first)
        assert found is not None
        assert found.exists
    assert exists(caller, "fluss")
    caller.close()


def test_an_error_of_the_server_is_raised_as_what_it_is(address: Address) -> None:
    caller = connect(address)
    with pytest.raises(DatabaseNotFound):
        caller.call(GET_DATABASE_INFO, GetDatabaseInfoRequest(database_name="nowhere"))
    assert exists(caller, "fluss")
    caller.close()


def test_a_call_that_the_server_does_not_offer_is_refused_here(address: Address) -> None:
    unknown = Api(29_999, "Unknown", Role.ANY, DatabaseExistsRequest, DatabaseExistsResponse)
    caller = connect(address)
    with pytest.raises(UnsupportedVersion):
        caller.call(unknown, DatabaseExistsRequest(database_name="x"))
    caller.close()


def test_nobody_listening_is_disconnected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(Disconnected):
        connect(Address("127.0.0.1", port))


def test_a_login_that_nobody_asked_for_fails_and_closes(address: Address) -> None:
    with pytest.raises(SecurityDisabled):
        DirectCaller.connect(WORLD, address, user="ann", password="x", timeout_s=10.0)


def test_users_log_in_and_others_do_not(tmp_path: Path) -> None:
    settings = {"security.protocol.map": "CLIENT:sasl", "security.sasl.plain.credentials": "ann=secret"}
    with ServerProcess(tmp_path, settings=settings) as server:
        host, _, port = server.address.rpartition(":")
        where = Address(host, int(port))
        caller = DirectCaller.connect(WORLD, where, user="ann", password="secret", timeout_s=10.0)
        assert exists(caller, "fluss")
        caller.close()
        with pytest.raises(AuthenticationFailed):
            DirectCaller.connect(WORLD, where, user="ann", password="wrong", timeout_s=10.0)


def test_threads_share_connections_and_each_gets_its_own_answer(address: Address) -> None:
    calls = DirectCalls(connect)
    wrong: list[str] = []

    def ask(name: str, expected: bool) -> None:
        wrong.extend(name for _ in range(50) if exists(calls, name, address) is not expected)

    threads = [threading.Thread(target=ask, args=(name, name == "fluss")) for name in ("fluss", "b", "c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    calls.close()
    with pytest.raises(ConnectionClosed):
        exists(calls, "fluss", address)


def test_a_connection_that_broke_is_made_again(address: Address) -> None:
    made: list[DirectCaller] = []

    def connecting(where: Address) -> DirectCaller:
        made.append(connect(where))
        return made[-1]

    calls = DirectCalls(connecting)
    assert exists(calls, "fluss", address)
    made[0]._stream.close()
    assert exists(calls, "fluss", address) is None, "the loop would go on"
    assert isinstance(made[0].broken, Disconnected)
    assert exists(calls, "fluss", address)
    assert len(made) == 2
    calls.close()


def test_an_attempt_ends_where_only_the_loop_can_go_on(address: Address) -> None:
    def failing(error: Exception) -> Callable[[DirectCaller], None]:
        def use(caller: DirectCaller) -> None:
            raise error

        return use

    calls = DirectCalls(connect)
    for passing in (NotLeader("for a test"), UnsupportedVersion("for a test"), RequestTimeout("for a test")):
        assert calls.attempt([address], failing(passing)) is None
    with pytest.raises(TableNotFound):
        calls.attempt([address], failing(TableNotFound("for a test")))
    calls.close()


def test_a_connection_that_owes_an_answer_is_not_kept(address: Address) -> None:
    calls = DirectCalls(connect)
    first, second = calls.borrow(address), calls.borrow(address)
    first.start(DATABASE_EXISTS, DatabaseExistsRequest(database_name="fluss"))
    calls.give_back(second)
    calls.give_back(first)
    assert first.broken is not None
    assert second.broken is None
    assert calls.borrow(address) is second
    calls.give_back(second)
    calls.close()


def test_a_signal_after_bytes_were_taken_costs_the_connection_and_the_next_call_is_answered(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: TcpStream, room: memoryview, timeout_s: float | None) -> int:
        receive(self, room[:5], timeout_s)
        raise KeyboardInterrupt  # as a handler does that runs when the call has returned

    receive = TcpStream.receive
    calls = DirectCalls(connect)
    assert exists(calls, "fluss", address)
    with monkeypatch.context() as patch:
        patch.setattr(TcpStream, "receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            exists(calls, "fluss", address)
    assert exists(calls, "fluss", address)
    calls.close()


def test_a_child_made_by_fork_does_not_use_its_parents_sockets(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = DirectCalls(connect)
    assert exists(calls, "fluss", address)
    caller = connect(address)
    asked = caller.start(DATABASE_EXISTS, DatabaseExistsRequest(database_name="fluss"))
    monkeypatch.setattr(forks, "count", forks.count + 1)
    for use in (
        lambda: exists(calls, "fluss", address),
        lambda: exists(caller, "fluss"),
        lambda: caller.finish(DATABASE_EXISTS, asked, timeout_s=5.0),
        lambda: caller.finish_now(DATABASE_EXISTS, asked),
    ):
        with pytest.raises(ConnectionClosed, match="fork"):
            use()
    child = copy.copy(caller)
    child.close()
    monkeypatch.undo()
    assert caller.finish(DATABASE_EXISTS, asked, timeout_s=5.0).exists, "the child left the socket alone"
    caller.close()
    calls.close()


class Silent:
    """A server that answers the handshake and then nothing, until the test lets it."""

    def __init__(self, real: Address) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self._server.getsockname()[1])
        self._behind = socket.create_connection(real)
        self.speak = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        client, _ = self._server.accept()
        with client:
            self._pass_on(client)
            while asked := client.recv(65536):
                self._behind.sendall(asked)
                answer = self._behind.recv(65536)
                self.speak.wait(20)
                client.sendall(answer)

    def _pass_on(self, client: socket.socket) -> None:
        self._behind.sendall(client.recv(65536))
        client.sendall(self._behind.recv(65536))

    def close(self) -> None:
        self.speak.set()
        self._thread.join()
        self._behind.close()
        self._server.close()


def test_a_silent_server_is_a_timeout_and_its_late_answer_is_passed_over(address: Address) -> None:
    silent = Silent(address)
    caller = connect(silent.address)
    with pytest.raises(RequestTimeout):
        caller.call(DATABASE_EXISTS, DatabaseExistsRequest(database_name="nowhere"), timeout_s=0.05)
    silent.speak.set()
    assert exists(caller, "fluss")
    caller.close()
    silent.close()


def test_closing_wakes_a_thread_that_waits(address: Address) -> None:
    silent = Silent(address)
    caller = connect(silent.address)
    caught: list[BaseException] = []

    def ask() -> None:
        try:
            exists(caller, "fluss")
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    while caller.requests < 2:
        pass
    caller.close()
    thread.join(10)
    assert not thread.is_alive()
    assert [type(error) for error in caught] == [ConnectionClosed]
    silent.close()


def test_an_answer_can_be_asked_for_without_waiting(address: Address) -> None:
    silent = Silent(address)
    caller = connect(silent.address)
    ticket = caller.start(DATABASE_EXISTS, DatabaseExistsRequest(database_name="fluss"))
    assert caller.finish_now(DATABASE_EXISTS, ticket) is None
    silent.speak.set()
    found = caller.finish(DATABASE_EXISTS, ticket, timeout_s=10.0)
    assert found.exists
    caller.close()
    silent.close()
