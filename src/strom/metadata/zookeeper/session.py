"""One session with ZooKeeper: requests that are bounded in number and in time, and typed errors. All of kazoo is here.

kazoo calls back in threads of its own; what it calls here only sets events, so that it never waits. A request that is
not answered in time fails with ``Disconnected`` or ``RequestTimeout``. It may still happen later, but nothing that is
asked afterwards in the same session overtakes it.

kazoo's thread ends for good after an error that it does not expect. ``revive`` starts it again, with a new session.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from strom.errors import (
    AuthorizationFailed,
    Closed,
    Disconnected,
    MetadataCorrupt,
    NotInstalled,
    RequestTimeout,
    StromError,
)
from strom.metadata.zookeeper.multi_read import MultiRead
from strom.metadata.zookeeper.operations import CheckNode, CreateNode, Node, NodeFacts, Operation, SetNode
from strom.metadata.zookeeper.options import ZooKeeperOptions
from strom.runtime.clock import Clock

try:
    from kazoo.client import KazooClient, KazooState, TransactionRequest
    from kazoo.exceptions import (
        EXCEPTIONS,
        AuthFailedError,
        BadVersionError,
        ConnectionClosedError,
        ConnectionLoss,
        InvalidACLError,
        KazooException,
        NoAuthError,
        NodeExistsError,
        NoNodeError,
        NotEmptyError,
        OperationTimeoutError,
        RolledBackError,
        RuntimeInconsistency,
        SessionExpiredError,
        SessionMovedError,
    )
    from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
    from kazoo.retry import KazooRetry
    from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE
except ImportError as missing:
    raise NotInstalled(
        "metadata in ZooKeeper need kazoo: pip install 'strom[cluster]'", extra="cluster"
    ) from missing

WINDOW = 64
"""Requests that one bulk call has on its way at a time."""

NODES_A_REQUEST = 64
"""Nodes that are read by one request. One may have half a megabyte, though few have a kilobyte."""

T = TypeVar("T")

LOOK_AGAIN_S = 0.2
"""How often who waits for a connection makes sure that kazoo is still trying."""

CLOSE_S = 3.0
"""kazoo waits for 10 s for its connection to end, whatever is asked of it."""
REVIVE_S = 1.0
RECONNECT_S = 0.05
RECONNECT_S_MAX = 1.0

LOG = logging.getLogger("strom.metadata")
_KAZOO_LOG = logging.getLogger("strom.metadata.kazoo")
_KAZOO_LOG.setLevel(logging.ERROR)  # it reports every attempt to connect; the store reports what matters

_LOST = (
    ConnectionLoss,
    ConnectionClosedError,
    SessionExpiredError,
    SessionMovedError,
    OperationTimeoutError,
    InterruptedError,
)
_DID_NOT_HOLD = (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError)
_NOT_ALLOWED = (NoAuthError, InvalidACLError, AuthFailedError)


class Deadline:
    """The end of a call."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._end = clock.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """Seconds left, at least 0."""
        return max(0.0, self._end - self._clock.monotonic())


class DidNotHold(Exception):
    """An operation of a ``multi`` found something else than it expected; nothing happened."""


class _Threads(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads; knows whether the one that holds the connection has ended."""

    _connection: threading.Thread | None = None

    def spawn(self, func: Callable[..., Any], *arguments: Any, **named: Any) -> threading.Thread:
        thread: threading.Thread = super().spawn(func, *arguments, **named)
        if getattr(func, "__name__", "") == "zk_loop":
            self._connection = thread
        return thread

    @property
    def ended(self) -> bool:
        """Whether there was such a thread, and it is over."""
        return self._connection is not None and not self._connection.is_alive()


class ZooKeeperSession:
    """A connection that reconnects by itself, as one session if it comes back in time."""

    def __init__(self, options: ZooKeeperOptions, clock: Clock, woken: Callable[[], None]) -> None:
        """``woken`` is called when a watch fires and when the connection is lost or back. It must not wait."""
        self.options = options
        self.revivals = 0
        """How often kazoo had to be started again: then requests of the session before may still be on their way."""
        self.connections = 0
        """How often a connection was made: each one has lost the watches of those before."""
        self._clock = clock
        self._woken = woken
        self._connected = threading.Event()
        self._acl = OPEN_ACL_UNSAFE if options.user is None else CREATOR_ALL_ACL
        self._closing = threading.Lock()
        self._closed = False
        self._handler = _Threads()
        self._revived = clock.monotonic()
        self._client = self._new_client(options, self._handler)
        self._client.add_listener(self._state_changed)

    @staticmethod
    def _new_client(options: ZooKeeperOptions, handler: Any) -> Any:
        retry = {"max_tries": -1, "delay": RECONNECT_S, "max_delay": RECONNECT_S_MAX, "max_jitter": 0.2}
        login = None if options.user is None else [("digest", f"{options.user}:{options.password}")]
        tls = options.tls
        return KazooClient(
            hosts=options.addresses,
            timeout=options.session_timeout_s,
            auth_data=login,
            handler=handler,
            connection_retry=KazooRetry(**retry, sleep_func=handler.sleep_func),
            logger=_KAZOO_LOG,
            use_ssl=tls is not None,
            ca=None if tls is None else tls.ca,
            certfile=None if tls is None else tls.certificate,
            keyfile=None if tls is None else tls.key,
            keyfile_password=None if tls is None else tls.key_password,
            verify_certs=tls is None or tls.verify,
            check_hostname=tls is not None and tls.verify,
        )

    # --- life ------------------------------------------------------------------------------------------------

    def start(self, deadline: Deadline) -> None:
        """Connect; raise if that takes too long."""
        self._client.start_async()
        self.wait_connected(deadline)

    def close(self) -> None:
        """End the session, and with it everything that ends with it. Closing twice is fine.

        A ZooKeeper that does not answer is not waited for: the session then ends by itself, in its time.
        """
        with self._closing:
            if self._closed:
                return
            self._closed = True
        self._connected.set()  # so that nobody goes on waiting
        ending = threading.Thread(target=self._end, name="strom-zookeeper-end", daemon=True)
        ending.start()
        ending.join(CLOSE_S)

    def _end(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:
            LOG.info("the session with ZooKeeper ends by itself: %r", error)

    def revive(self) -> None:
        """Start kazoo again if its thread ended. For any thread but kazoo's own."""
        if not self._handler.ended:
            return
        with self._closing:
            soon = self._clock.monotonic() - self._revived < REVIVE_S
            if self._closed or soon or not self._handler.ended:
                return
            LOG.warning(
                "the connection to ZooKeeper at %s ended and is started again", self.options.addresses
            )
            self.revivals += 1
            self._revived = self._clock.monotonic()
            self._client.start_async()  # a stop() would leave its request to close in the queue, for the new session

    def _state_changed(self, state: str) -> None:
        """Called in kazoo's thread."""
        if state == KazooState.CONNECTED:
            self.connections += 1
            self._connected.set()
        elif not self._closed:
            self._connected.clear()
        self._woken()

    def _watched(self, _event: object) -> None:
        """Called in kazoo's thread."""
        self._woken()

    @property
    def connected(self) -> bool:
        """Whether there is a connection right now, as far as is known."""
        return self._connected.is_set() and not self._closed

    @property
    def number(self) -> int | None:
        """The session's number in ZooKeeper; None while there is no connection."""
        found = self._client.client_id
        return None if found is None else int(found[0])

    def wait_connected(self, deadline: Deadline) -> None:
        """Wait for a connection. Requests without one would pile up in kazoo."""
        while not self._connected.wait(min(deadline.left_s, LOOK_AGAIN_S)):
            if deadline.left_s == 0.0:
                raise self._disconnected("there is no connection")
            self.revive()
        if self._closed:
            raise Closed("this metadata store was closed", root=self.options.root)

    # --- requests --------------------------------------------------------------------------------------------

    def get(self, path: str, deadline: Deadline, *, watch: bool = False) -> Node | None:
        """A node; None if there is none."""
        self.wait_connected(deadline)
        return self._node(self._client.get_async(path, watch=self._watched if watch else None), deadline)

    def children(
        self, path: str, deadline: Deadline, *, watch: bool = False
    ) -> tuple[list[str], NodeFacts] | None:
        """The names of a node's children; None if there is no such node."""
        self.wait_connected(deadline)
        return self._names(
            self._client.get_children_async(path, watch=self._watched if watch else None, include_data=True),
            deadline,
        )

    def get_each(self, paths: Sequence[str], deadline: Deadline) -> Iterator[Node | None]:
        """Many nodes, in the order of their paths, with several requests on their way at a time."""
        some = [paths[at : at + NODES_A_REQUEST] for at in range(0, len(paths), NODES_A_REQUEST)]
        for answer in self._each(self._read_some, some, deadline):
            for found in self._result(answer, deadline):
                if not isinstance(found, Node) and found != NoNodeError.code:
                    raise self._typed(EXCEPTIONS[found]())
                yield found if isinstance(found, Node) else None

    def children_of_each(self, paths: Sequence[str], deadline: Deadline) -> Iterator[list[str]]:
        """The children of many nodes."""

        def ask(path: str) -> Any:
            return self._client.get_children_async(path, include_data=True)

        for path, answer in zip(paths, self._each(ask, paths, deadline), strict=True):
            found = self._names(answer, deadline)
            if found is None:
                raise vanished(path)
            yield found[0]

    def sync(self, path: str, deadline: Deadline) -> None:
        """What is asked afterwards shows everything that was committed before."""
        self.wait_connected(deadline)
        self._result(self._client.sync_async(path), deadline)

    def multi(self, operations: Sequence[Operation], deadline: Deadline) -> list[NodeFacts]:
        """Do all or nothing; return the facts of the nodes that were set, in order.

        Raise ``DidNotHold`` if nothing happened because a node was not as expected, and a ``Retry`` if it is unknown
        whether it happened.
        """
        self.wait_connected(deadline)
        request = TransactionRequest(self._client)
        for operation in operations:
            self._add(request, operation)
        try:
            outcomes = self._result(request.commit_async(), deadline)
        except _DID_NOT_HOLD as error:
            raise DidNotHold(type(error).__name__) from error
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(
                outcome, RolledBackError | RuntimeInconsistency
            ):
                if isinstance(outcome, _DID_NOT_HOLD):
                    raise DidNotHold(type(outcome).__name__)
                raise self._typed(outcome)
        if len(outcomes) != len(operations) or any(isinstance(one, Exception) for one in outcomes):
            raise MetadataCorrupt(
                f"ZooKeeper answered a commit in a way that is not understood: {outcomes!r}", reason="answer"
            )
        return [_facts(one) for one in outcomes if hasattr(one, "mzxid")]

    def remove_each(self, paths: Sequence[str], deadline: Deadline) -> None:
        """Remove nodes, as far as they are there."""
        for answer in self._each(self._client.delete_async, paths, deadline):
            try:
                self._result(answer, deadline)
            except _DID_NOT_HOLD:
                pass  # somebody else did

    def ensure_path(self, path: str, deadline: Deadline) -> None:
        """Create a node and those above it, where they are missing."""
        above = ""
        for part in path.strip("/").split("/"):
            above = f"{above}/{part}"
            if self.get(above, deadline) is None:
                try:
                    self.multi([CreateNode(above)], deadline)
                except DidNotHold:
                    pass  # somebody else did

    # --- how requests are waited for -------------------------------------------------------------------------

    def _each(self, ask: Callable[[T], Any], questions: Sequence[T], deadline: Deadline) -> Iterator[Any]:
        """The answers to many questions, each asked at most ``WINDOW`` questions before its answer is waited for."""
        self.wait_connected(deadline)
        answers = [ask(one) for one in questions[:WINDOW]]
        for number in range(len(questions)):
            yield answers[number % WINDOW]
            if number + WINDOW < len(questions):
                answers[number % WINDOW] = ask(questions[number + WINDOW])

    def _read_some(self, paths: Sequence[str]) -> Any:
        answer = self._client.handler.async_result()
        self._client._call(MultiRead(paths), answer)  # what kazoo's own requests go through
        return answer

    def _node(self, answer: Any, deadline: Deadline) -> Node | None:
        try:
            value, facts = self._result(answer, deadline)
        except NoNodeError:
            return None
        return Node(bytes(value or b""), _facts(facts))

    def _names(self, answer: Any, deadline: Deadline) -> tuple[list[str], NodeFacts] | None:
        try:
            names, facts = self._result(answer, deadline)
        except NoNodeError:
            return None
        return names, _facts(facts)

    def _result(self, answer: Any, deadline: Deadline) -> Any:
        """Wait for an answer. What a node should have been is left to the caller; everything else is typed here."""
        try:
            return answer.get(timeout=deadline.left_s)
        except _DID_NOT_HOLD:
            raise
        except KazooTimeoutError as error:
            raise RequestTimeout(
                f"ZooKeeper at {self.options.addresses} did not answer within "
                f"{self.options.request_timeout_s:g} s: try again",
                addresses=self.options.addresses,
            ) from error
        except (KazooException, InterruptedError) as error:
            raise self._typed(error) from error

    def _typed(self, error: Exception) -> StromError:
        if isinstance(error, _LOST):
            return self._disconnected(f"the connection was lost ({type(error).__name__})")
        if isinstance(error, _NOT_ALLOWED):
            return AuthorizationFailed(
                f"ZooKeeper does not let this user work below {self.options.root} ({type(error).__name__}): check "
                f"zookeeper.user and zookeeper.password, and the access lists of {self.options.root}",
                root=self.options.root,
            )
        return MetadataCorrupt(
            f"ZooKeeper answered with an error that is not understood: {type(error).__name__} {error}",
            reason="answer",
        )

    def _disconnected(self, reason: str) -> Disconnected:
        return Disconnected(
            f"ZooKeeper at {self.options.addresses} cannot be reached: {reason}. Check that a majority of its servers "
            f"runs and that zookeeper.addresses names them",
            addresses=self.options.addresses,
        )

    def _add(self, request: Any, operation: Operation) -> None:
        match operation:
            case CheckNode(path, version):
                request.check(path, version)
            case CreateNode(path, value, ends_with_session):
                request.create(path, value, acl=self._acl, ephemeral=ends_with_session)
            case SetNode(path, value, version):
                request.set_data(path, value, version)
            case _:
                request.delete(operation.path, operation.version)


def vanished(path: str) -> MetadataCorrupt:
    """The error for a node that Strom never removes."""
    return MetadataCorrupt(
        f"{path} is gone from ZooKeeper: somebody removed it. Stop the cluster and put ZooKeeper back from a backup",
        path=path,
        reason="missing",
    )


def _facts(found: Any) -> NodeFacts:
    return NodeFacts(found.czxid, found.mzxid, found.pzxid, found.version, found.ephemeralOwner)
