"""Everything external that a server or client needs, in one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from strom.runtime.clock import Clock, SystemClock
from strom.runtime.compiling import Compiling
from strom.runtime.files import Files, LocalFiles
from strom.runtime.memory import keep_freed_blocks
from strom.runtime.objects.object_place import ObjectPlace
from strom.runtime.objects.object_store import Objects
from strom.runtime.random import Randomness, SystemRandomness
from strom.runtime.sockets import Network, TcpNetwork
from strom.runtime.streams import Dial, dial_tcp
from strom.runtime.tasks import Offload, ThreadOffload

OFFLOAD_THREADS = 4


@dataclass(frozen=True)
class World:
    """The parts that a simulation replaces."""

    clock: Clock
    randomness: Randomness
    files: Files
    network: Network
    offload: Offload
    dial: Dial | None = None
    """For blocking threads; None if everything runs on one loop, as in a simulation."""
    compiling: Compiling | None = None
    """The compiler of machine code; None: the servers' own."""
    objects: Callable[[ObjectPlace], Objects] | None = None
    """The object store of a place; None: the one that is there."""

    @classmethod
    def system(cls, *, offload_threads: int = OFFLOAD_THREADS, background: bool = False) -> World:
        """The real machine. The caller closes ``offload`` at the end; ``background``: see ``ThreadOffload``."""
        keep_freed_blocks()
        return cls(
            clock=SystemClock(),
            randomness=SystemRandomness(),
            files=LocalFiles(),
            network=TcpNetwork(),
            offload=ThreadOffload(offload_threads, background=background),
            dial=dial_tcp,
        )
