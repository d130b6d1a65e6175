"""Who uploads into a place: one cluster, from one data folder.

A folder may be copied, or restored from a backup, while the original goes on. Both would continue the same remote
logs. So the first to upload says who it is, in the object ``<cluster>/owner``, and another incarnation of the cluster
only reads until somebody removes that object.
"""

from __future__ import annotations

from strom.errors import Fenced
from strom.runtime.objects.object_store import Objects, PutOutcome
from strom.server.remote.remote_logs import RemoteLogs


class ChainOwner:
    """Checks once that the place is this server's to write."""

    def __init__(self, remote: RemoteLogs) -> None:
        self._remote = remote
        self._checked = False

    async def check(self) -> None:
        """Raise Fenced when another folder uploads there."""
        if self._checked:
            return
        access = self._remote.access
        key, me = f"{access.owner.cluster}/owner", access.owner.incarnation
        found = await self._remote.loop.run(_owner(self._remote.objects, key, me))
        if found != me:
            raise Fenced(
                f"another folder of this cluster uploads to {access.place}: this one is a copy of it, or it was "
                f"restored, and only reads there. Once no other server uses the place, remove the object {key}",
                key=key,
            )
        self._checked = True


async def _owner(objects: Objects, key: str, me: str) -> str:
    """Whose the place is by now."""
    if await objects.put_if_absent(key, me.encode()) is PutOutcome.STORED:
        return me
    return (await objects.get(key)).decode(errors="replace")
