"""The status of a tablet server that is another process, asked by inner calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from strom.errors import Disconnected, StromError
from strom.protocol.api_keys import SERVER_METRICS, SERVER_STATUS, TABLE_STATUS, Api, Request, Response
from strom.protocol.messages.inner import ServerMetricsRequest
from strom.protocol.messages.own import ServerStatusRequest, TableStatusRequest, WireBucketStatus
from strom.runtime.metrics import Sample
from strom.server.calls.catalog.descriptions import path_message
from strom.server.links.inner_link import InnerLink
from strom.server.status.status import unknown_status
from strom.server.tablets.catalog_view import CatalogView
from strom.server.tablets.tablets import led_by

SUMMARY_TIMEOUT_S = 5.0
TABLE_TIMEOUT_S = 30.0


class RemoteStatus:
    """A tablet server that is a process of its own."""

    def __init__(
        self,
        server_id: int,
        link: InnerLink,
        view: CatalogView,
        facts: Callable[[], dict[str, Any]] = dict,
        *,
        gone: bool = False,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        """``facts``: what is known here of its process, for the summary.

        ``gone``: it does not answer, so it is not asked. ``now_ms``: the clock here.
        """
        self._now_ms = now_ms
        self._gone = gone
        self.server_id = server_id
        self._link = link
        self._view = view
        self._facts = facts

    async def table(self, table_id: int) -> list[WireBucketStatus]:
        """Its answer; if it does not answer, its buckets with that as their error."""
        table = self._view.catalog.table_by_id(table_id)
        if table is None:
            return []
        request = TableStatusRequest(table_path=path_message(table.path))
        try:
            answer = await self._call(TABLE_STATUS, request)
        except StromError as error:
            led = led_by(self.server_id, table, self._view.catalog)
            return [unknown_status(one, self.server_id, error.message) for one in led]
        return list(answer.buckets) if answer.table_id == table_id else []

    async def summary(self) -> dict[str, Any]:
        """Its own summary, or the error that it does not answer.

        In a cluster also how far its clock is ahead of this one's, as far as that is certain.
        """
        asked_ms = self._now_ms()
        try:
            answer = await self._call(SERVER_STATUS, ServerStatusRequest(), timeout_s=SUMMARY_TIMEOUT_S)
        except StromError as error:
            return {"tables": {}, "error": error.message}
        summary: dict[str, Any] = json.loads(bytes(answer.status_json))
        if "now_ms" in summary:
            then_ms = summary["now_ms"]
            summary["clock_apart_s"] = (then_ms - min(max(then_ms, asked_ms), self._now_ms())) / 1000
        return {**summary, **self._facts()}

    async def samples(self) -> list[Sample]:
        """Its metrics; none when it does not answer."""
        try:
            answer = await self._call(SERVER_METRICS, ServerMetricsRequest(), timeout_s=SUMMARY_TIMEOUT_S)
        except StromError:
            return []
        found: list[Sample] = json.loads(bytes(answer.samples_json))
        return found

    async def _call(
        self, api: Api[Request, Response], request: Request, *, timeout_s: float = TABLE_TIMEOUT_S
    ) -> Response:
        if self._gone:
            raise Disconnected(f"tablet server {self.server_id} does not answer")
        return await self._link.call(api, request, timeout_s=timeout_s)
