"""Processes that can be killed, inside one event loop.

A :class:`Life` is one process from its start to its death. What it starts (tasks), opens (files, connections) and
commits belongs to it and ends at the same instant: after ``die`` nothing of it reaches the disk, the network or the
metadata, whatever its code still does. That is kill -9; the disk decides what it keeps.

A life can also die at its n-th change from now on (``die_after``), so that it ends in the middle of a write with
several steps, as real ones do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Any, Protocol, TypeVar, TypeVarTuple

from strom.metadata.changes import Requirement, Update
from strom.metadata.memory import MemoryStore
from strom.metadata.store import Announcement, Delta, Snapshot, Watcher
from strom.runtime.files import Bytes
from strom.runtime.random import Randomness
from strom.runtime.tasks import InlineOffload
from strom.testing.disk import ForgettingDisk, ForgettingFile, ForgettingLock
from strom.testing.network import MemoryListening, MemoryNetwork

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")
Spoken = TypeVar("Spoken", bound=asyncio.BaseProtocol)

_here: ContextVar[Life | None] = ContextVar("life", default=None)


class Killed(BaseException):
    """The process that runs this code is dead. Not an ``Exception``: nobody may handle it."""


class Life:
    """One process, alive until ``die``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.sync_failed = False
        """Whether it saw a sync fail: then the system's cache and the disk may differ until the machine restarts."""
        self.on_death: list[Callable[[], None]] = []
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._changes_left: int | None = None

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Run code as this process."""
        token = _here.set(self)
        try:
            yield
        finally:
            _here.reset(token)

    def spawn(self, work: Coroutine[Any, Any, Result], name: str) -> asyncio.Task[Result]:
        """Start a task of this process."""
        with self.inside():
            return asyncio.get_running_loop().create_task(work, name=f"{self.name}: {name}")

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """A task that this process started."""
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        if self.dead:
            task.cancel()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if self.dead and not task.cancelled():
            task.exception()  # retrieve it, or asyncio would complain

    def check(self) -> None:
        """Raise Killed when the process is dead."""
        if self.dead:
            raise Killed(self.name)

    def change(self) -> None:
        """Called before every durable change: die here if it is time."""
        self.check()
        if self._changes_left is not None:
            self._changes_left -= 1
            if self._changes_left < 0:
                self.die()
                raise Killed(self.name)

    def die_after(self, changes: int) -> None:
        """Die instead of making the change after ``changes`` more."""
        self._changes_left = changes

    def die(self) -> None:
        """End everything, now."""
        if self.dead:
            return
        self.dead = True
        for task in list(self._tasks):
            task.cancel()
        for callback in self.on_death:
            callback()


def current_life() -> Life | None:
    """The process that runs the calling code."""
    return _here.get()


def life_of(context: Context) -> Life | None:
    """The process whose code runs in a context."""
    return context.get(_here)


def watch_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Let every new task of the loop belong to the process that starts it."""

    def make(
        loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, **options)
        life = _here.get()
        if life is not None:
            life.adopt(task)
        return task

    loop.set_task_factory(make)  # type: ignore[arg-type]


# --- its disk --------------------------------------------------------------------------------------------------------


class Observer(Protocol):
    """Called after a process changed the disk."""

    def appended(self, path: str, position: int, content: bytes) -> None:
        """Bytes at the end of a file."""

    def truncated(self, path: str, size: int) -> None:
        """A file was truncated."""

    def replaced(self, path: str, content: bytes) -> None:
        """A file was written whole, durably."""

    def removed(self, path: str) -> None:
        """A file is gone."""


class MortalFile:
    """A :class:`strom.runtime.files.File` of a process that can die."""

    def __init__(self, life: Life, file: ForgettingFile, observer: Observer) -> None:
        self._life = life
        self._file = file
        self._observer = observer

    @property
    def path(self) -> str:
        return self._file.path

    def size(self) -> int:
        self._life.check()
        return self._file.size()

    def read_at(self, position: int, length: int) -> bytes:
        self._life.check()
        return self._file.read_at(position, length)

    def read_into(self, position: int, rooms: Sequence[memoryview]) -> int:
        self._life.check()
        return self._file.read_into(position, rooms)

    def append(self, buffers: Sequence[Bytes]) -> int:
        self._life.change()
        content = b"".join(buffers)
        position = self._file.append([content])
        self._observer.appended(self.path, position, content)
        return position

    def truncate(self, size: int) -> None:
        self._life.change()
        self._file.truncate(size)
        self._observer.truncated(self.path, size)

    def sync(self) -> None:
        self._life.change()
        try:
            self._file.sync()
        except OSError:
            self._life.sync_failed = True
            raise

    def close(self) -> None:
        self._file.close()


class MortalFiles:
    """A :class:`strom.runtime.files.Files` of a process that can die."""

    def __init__(self, life: Life, disk: ForgettingDisk, observer: Observer) -> None:
        self._life = life
        self._disk = disk
        self._observer = observer

    def open(self, path: str, *, create: bool = False) -> MortalFile:
        if create and not self.exists(path):
            self._life.change()
        self._life.check()
        return MortalFile(self._life, self._disk.open(path, create=create), self._observer)

    def exists(self, path: str) -> bool:
        self._life.check()
        return self._disk.exists(path)

    def is_folder(self, path: str) -> bool:
        self._life.check()
        return self._disk.is_folder(path)

    def size(self, path: str) -> int:
        self._life.check()
        return self._disk.size(path)

    def identity(self, path: str) -> tuple[int, int]:
        self._life.check()
        return self._disk.identity(path)

    def make_folder(self, path: str) -> None:
        self._life.change()
        self._disk.make_folder(path)

    def remove(self, path: str) -> None:
        self._life.change()
        self._disk.remove(path)
        self._observer.removed(path)

    def remove_tree(self, path: str) -> None:
        for name in self.list(path):
            inner = f"{path}/{name}"
            if self.is_folder(inner):
                self.remove_tree(inner)
            else:
                self.remove(inner)
        self._life.change()
        self._disk.remove_tree(path)

    def rename(self, source: str, target: str) -> None:
        self._life.change()
        self._disk.rename(source, target)

    def sync_folder(self, path: str) -> None:
        self._life.change()
        self._disk.sync_folder(path)

    def read_whole(self, path: str) -> bytes:
        self._life.check()
        return self._disk.read_whole(path)

    def map(self, path: str) -> memoryview:
        self._life.check()
        return self._disk.map(path)

    def write_whole(self, path: str, content: Bytes) -> None:
        self._life.change()
        try:
            self._disk.write_whole(path, content)
        except OSError:
            self._life.sync_failed = True
            raise
        self._observer.replaced(path, bytes(content))

    def write_whole_if_absent(self, path: str, content: Bytes) -> bool:
        self._life.change()
        written = self._disk.write_whole_if_absent(path, content)
        if written:
            self._observer.replaced(path, bytes(content))
        return written

    def narrow(self, path: str) -> bool:
        self._life.check()
        return self._disk.narrow(path)

    def free_bytes(self, path: str) -> int:
        self._life.check()
        return self._disk.free_bytes(path)

    def lock(self, path: str) -> ForgettingLock | None:
        self._life.check()
        return self._disk.lock(path)

    def list(self, folder: str) -> list[str]:
        """Last, because the name hides the type from here on."""
        self._life.check()
        return self._disk.list(folder)


class SlowOffload(InlineOffload):
    """Slow work: other tasks run before it begins, and between its end and the callback."""

    def __init__(self, randomness: Randomness, *, delay_ms_max: int) -> None:
        self._randomness = randomness
        self._delay_ms_max = delay_ms_max

    async def run(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        await self._pause()
        result = work(*arguments)
        await self._pause()
        return result

    async def _pause(self) -> None:
        steps = self._randomness.below(4)
        # Often no time at all, only a turn for the others: enough for most races.
        await asyncio.sleep(0 if steps < 2 else self._randomness.below(self._delay_ms_max * 1000) / 1e6)


# --- its connections -------------------------------------------------------------------------------------------------


BUFFER_BYTES = 64 * 1024


class _Inside(asyncio.BufferedProtocol):
    """A protocol whose callbacks run as its process, and stop once that is dead."""

    def __init__(self, life: Life, protocol: Any) -> None:
        self._life = life
        self._protocol = protocol
        self._buffer = bytearray(0 if isinstance(protocol, asyncio.BufferedProtocol) else BUFFER_BYTES)
        """For a protocol that has none."""

    def _call(self, name: str, *arguments: Any) -> Any:
        if self._life.dead:
            return None
        token = _here.set(self._life)  # as ``inside``, which would be slow here
        try:
            return getattr(self._protocol, name)(*arguments)
        finally:
            _here.reset(token)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._call("connection_made", transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._call("connection_lost", error)

    def get_buffer(self, sizehint: int) -> Any:
        if self._buffer:
            return self._buffer
        found = self._call("get_buffer", sizehint)
        return bytearray(BUFFER_BYTES) if found is None else found

    def buffer_updated(self, nbytes: int) -> None:
        if self._buffer:
            self._call("data_received", bytes(self._buffer[:nbytes]))
        else:
            self._call("buffer_updated", nbytes)

    def eof_received(self) -> bool | None:
        return bool(self._call("eof_received"))

    def pause_writing(self) -> None:
        self._call("pause_writing")

    def resume_writing(self) -> None:
        self._call("resume_writing")


class MortalNetwork:
    """A :class:`strom.runtime.sockets.Network` as one process sees it, on a host of the process's name."""

    def __init__(self, life: Life, network: MemoryNetwork) -> None:
        self._life = life
        self._network = network
        life.on_death.append(self._leave)
        self._listening: list[MemoryListening] = []

    async def listen(
        self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> MemoryListening:
        self._life.check()
        listening = await self._network.listen(
            self._life.name, port, lambda: _Inside(self._life, self._made(factory))
        )
        self._listening.append(listening)
        return listening

    async def connect(
        self, host: str, port: int, factory: Callable[[], Spoken]
    ) -> tuple[asyncio.Transport, Spoken]:
        self._life.check()
        protocol = factory()
        transport, _ = await self._network.connect(
            host, port, lambda: _Inside(self._life, protocol), source=self._life.name
        )
        return transport, protocol

    def _made(self, factory: Callable[[], asyncio.BaseProtocol]) -> asyncio.BaseProtocol:
        with self._life.inside():
            return factory()

    def _leave(self) -> None:
        for listening in self._listening:
            listening.close()
        self._network.cut(self._life.name)


# --- its metadata ----------------------------------------------------------------------------------------------------


class MortalStore:
    """A :class:`strom.metadata.store.MetadataStore` that one process opened; what it commits stays."""

    notice: str | None = None
    hears = True

    def __init__(self, life: Life, store: MemoryStore) -> None:
        self._life = life
        self._store = store.another()
        self._watches: list[Callable[[], None]] = []
        life.on_death.append(self._store.close)

    def read(self, prefix: str = "") -> Snapshot:
        self._life.check()
        return self._store.read(prefix)

    def commit(self, requirements: Sequence[Requirement], updates: Sequence[Update]) -> int:
        self._life.change()
        version = self._store.commit(requirements, updates)
        self._life.change()  # dead before anybody heard that it was done
        return version

    def announce(self, key: str, value: bytes) -> Announcement:
        self._life.change()
        return self._store.announce(key, value)

    def changed_since(self, version: int) -> bool:
        self._life.check()
        return self._store.changed_since(version)

    def changes_since(self, version: int) -> Delta | None:
        self._life.check()
        return self._store.changes_since(version)

    def watch(self, callback: Watcher) -> Callable[[], None]:
        forget = self._store.watch(callback)
        self._watches.append(forget)
        return forget

    def close(self) -> None:
        for forget in self._watches:
            forget()
        self._store.close()
