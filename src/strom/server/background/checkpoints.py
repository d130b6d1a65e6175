"""Checkpoints: written from time to time so that a restart has little to read.

Three steps in three places: the facts are taken in the bucket's lane, between two appends; a thread waits for the disk;
the result is noted on the loop.
"""

from __future__ import annotations

import asyncio

from strom.errors import StorageFull, StorageOffline, StromError
from strom.log.sync import PendingCheckpoint
from strom.runtime.tasks import Offload, Tasks
from strom.server.tablets.tablet_slot import TabletSlot
from strom.tablet.tablet import Tablet


class Checkpoints:
    """Writes checkpoints of buckets that took enough bytes since their last one."""

    def __init__(self, offload: Offload, tasks: Tasks, *, every_bytes: int) -> None:
        self._offload = offload
        self._tasks = tasks
        self._every_bytes = every_bytes
        self._under_way: set[int] = set()

    def appended(self, slot: TabletSlot, tablet: Tablet, size: int) -> None:
        """A bucket took ``size`` more bytes."""
        tablet.bytes_since_checkpoint += size
        if tablet.bytes_since_checkpoint >= self._every_bytes and id(tablet) not in self._under_way:
            tablet.bytes_since_checkpoint = 0
            self._under_way.add(id(tablet))
            slot.checkpoint = self._tasks.spawn(self._write(slot, tablet), f"checkpoint of {slot.bucket}")

    async def _write(self, slot: TabletSlot, tablet: Tablet) -> None:
        slot.readers += 1  # a log that is being checkpointed is not idle
        try:
            pending = await self._take(slot)
            if pending is not None:
                await self._offload.run(pending.write)
                tablet.log.checkpointed(pending)
                tablet.advance()
        except StorageFull:
            pass  # a checkpoint only spares a later restart some reading
        except OSError as error:
            tablet.fail(
                StorageOffline(f"the disk failed to write a checkpoint of bucket {slot.bucket}: {error}")
            )
        except StromError:
            pass  # dropped or offline meanwhile: nothing to remember
        finally:
            slot.readers -= 1
            slot.checkpoint = None
            self._under_way.discard(id(tablet))

    async def _take(self, slot: TabletSlot) -> PendingCheckpoint | None:
        result = slot.do(lambda tablet: tablet.log.pending_checkpoint(), small=False, any_role=True)
        return await result if isinstance(result, asyncio.Future) else result
