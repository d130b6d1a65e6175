"""A cut: everything that a server holds at one instant, to copy on the server's machine."""

from __future__ import annotations

from dataclasses import dataclass

from strom.client.cluster.cluster import Cluster
from strom.protocol.api_keys import BACKUP
from strom.protocol.messages.own import BackupRequest

RENEW_EVERY_S = 10.0


@dataclass(frozen=True)
class BackupCut:
    """A cut, and the folder it is in."""

    backup_id: str
    folder: str


class BackupAdmin:
    """The calls of backups."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def begin(self) -> BackupCut:
        """Make a cut. It is kept for a minute unless it is renewed."""
        response = await self._cluster.ask(BACKUP, BackupRequest(action="begin"))
        assert response.backup_id is not None
        assert response.folder is not None
        return BackupCut(response.backup_id, response.folder)

    async def renew(self, cut: BackupCut) -> None:
        """Keep it for another minute."""
        await self._cluster.ask(BACKUP, BackupRequest(action="renew", backup_id=cut.backup_id))

    async def end(self, cut: BackupCut) -> None:
        """Free the cut."""
        await self._cluster.ask(BACKUP, BackupRequest(action="end", backup_id=cut.backup_id))
