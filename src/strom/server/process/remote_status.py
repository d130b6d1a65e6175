"""What a tablet server says about itself that is a process of its own: asked over the pipe."""

from __future__ import annotations

from typing import Any

from strom.errors import Disconnected, StromError
from strom.runtime.metrics import Sample
from strom.server.process.supervisor import TabletProcess
from strom.server.status.status import BucketFacts, unknown_bucket
from strom.server.tablets.catalog_view import CatalogView
from strom.server.tablets.tablets import led_by


class RemoteStatus:
    """A tablet server that is a process of its own."""

    def __init__(self, process: TabletProcess, view: CatalogView) -> None:
        self.server_id = process.server_id
        self._process = process
        self._view = view

    async def table(self, table_id: int) -> list[BucketFacts]:
        """What it answers; when it does not, its buckets with that as their error."""
        try:
            answer = await self._process.ask("table", {"table_id": table_id})
        except StromError as error:
            table = self._view.catalog.table_by_id(table_id)
            led = [] if table is None else led_by(self.server_id, table, self._view.catalog)
            return [unknown_bucket(one, self.server_id, error.message) for one in led]
        found: list[BucketFacts] = answer["buckets"]
        return found

    async def summary(self) -> dict[str, Any]:
        """Its own summary, or that it does not answer."""
        try:
            summary = await self._process.ask("summary", timeout_s=5.0)
        except Disconnected as error:
            return {"tables": {}, "error": error.message}
        return {**summary, "process": self._process.process_id, "starts": self._process.starts}

    async def samples(self) -> list[Sample]:
        """Its metrics; none when it does not answer."""
        try:
            found: list[Sample] = (await self._process.ask("samples", timeout_s=5.0))["samples"]
        except Disconnected:
            return []
        return found
