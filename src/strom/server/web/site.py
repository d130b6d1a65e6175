"""The routes of the HTTP port, and the facts behind them.

Pages with many tables are rendered off the loop, from immutable values.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from strom._version import __version__
from strom.coordinator.catalog import Catalog
from strom.rpc.http_server import HttpAnswer
from strom.runtime.clock import Clock
from strom.runtime.metrics import METRICS_TYPE, Metrics, labelled, render
from strom.runtime.tasks import Offload
from strom.server.status.cluster_concerns import cluster_concerns
from strom.server.status.concern import Concern, as_data
from strom.server.status.status import TabletServers
from strom.server.tablets.catalog_view import CatalogView
from strom.server.web.health import health_answer, server_concerns
from strom.server.web.page import render_page

FindFacts = Callable[[], dict[str, Any]]


SUMS = ("rows", "lag", "size_bytes", "segments", "waiting", "offline", "bytes_skipped", "bytes_followed")
"""What a table has on all servers together."""


class Site:
    """The pages of one server, whatever its processes."""

    def __init__(
        self,
        view: CatalogView,
        servers: TabletServers,
        metrics: Metrics,
        clock: Clock,
        offload: Offload,
        *,
        folder: str,
        connections: Callable[[], int],
        shared: bool,
        cluster: Callable[[Catalog], FindFacts] | None = None,
        own: Callable[[], Sequence[Concern]] = tuple,
        role: Callable[[], str] = str,
    ) -> None:
        """``cluster``: finds the facts of a cluster of machines, in any thread. ``own``: what is wrong with this
        process of it; ``role``: which one it is."""
        self._view = view
        self._servers = servers
        self._metrics = metrics
        self._clock = clock
        self._offload = offload
        self._folder = folder
        self._connections = connections
        self._shared = shared
        self._cluster = cluster
        self._own = own
        self._role = role
        self._started = clock.monotonic()

    async def respond(self, path: str) -> HttpAnswer:
        """The answer for a path; the query of the page names the column to sort tables by."""
        path, _, query = path.partition("?")
        pages: dict[str, Callable[[], Awaitable[HttpAnswer]]] = {
            "/": lambda: self._page(query),
            "/health": self._health,
            "/metrics": self._metrics_page,
            "/status.json": self._status_page,
        }
        page = pages.get(path)
        if page is None:
            known = ", ".join(pages)
            return HttpAnswer(f"There is no {path} here, only {known}\n", status=HTTPStatus.NOT_FOUND)
        return await page()

    async def _page(self, query: str) -> HttpAnswer:
        page = await self._offload.run(render_page, await self.describe(), query.removeprefix("sort="))
        return HttpAnswer(page, "text/html; charset=utf-8")

    async def _status_page(self) -> HttpAnswer:
        content = await self._offload.run(json.dumps, await self.describe())
        return HttpAnswer(content + "\n", "application/json")

    async def _health(self) -> HttpAnswer:
        """200 while everything can be read and written, else 503; the words say what is wrong."""
        summaries = await self._summaries()
        found = (await self._cluster_facts(self._view.fresh(), summaries)).get("cluster")
        concerns = list(server_concerns(summaries, gone_is_bad=found is None))
        concerns += self._own() if found is None else [Concern(**one) for one in found["concerns"]]
        return health_answer(concerns, role=self._role())

    async def _summaries(self) -> dict[int, dict[str, Any]]:
        """What each tablet server says."""
        servers = self._servers()
        found = await asyncio.gather(*(server.summary() for server in servers))
        return {server.server_id: summary for server, summary in zip(servers, found, strict=True)}

    async def _metrics_page(self) -> HttpAnswer:
        if self._shared:
            return HttpAnswer(await self._offload.run(render, self._metrics.samples()), METRICS_TYPE)
        if self._cluster is not None:
            await self._cluster_facts(self._view.fresh(), {})  # which sets the metrics of a cluster
        samples = labelled(self._metrics.samples(), server="coordinator")
        servers = self._servers()
        found = await asyncio.gather(*(server.samples() for server in servers))
        for server, more in zip(servers, found, strict=True):
            samples += labelled(more, server=str(server.server_id))
        return HttpAnswer(await self._offload.run(render, samples), METRICS_TYPE)

    async def describe(self) -> dict[str, Any]:
        """Everything the status page shows, as plain data."""
        catalog = self._view.fresh()
        by_id = await self._summaries()
        return {
            "version": __version__,
            "folder": self._folder,
            "uptime_s": self._clock.monotonic() - self._started,
            "connections": self._connections(),
            "servers": [_server(catalog, server_id, summary) for server_id, summary in by_id.items()],
            "tables": await self._offload.run(_tables, catalog, list(by_id.values())),
            "sinks": _sinks(catalog),
            **({"role": self._role()} if self._role() else {}),
            **await self._cluster_facts(catalog, by_id),
        }

    async def _cluster_facts(
        self, catalog: Catalog, summaries: Mapping[int, Mapping[str, Any]]
    ) -> dict[str, Any]:
        """The facts of a cluster, with what is wrong with it; nothing for a single machine."""
        if self._cluster is None:
            return {}
        facts = await self._offload.run(self._cluster(catalog))
        concerns = [*self._own(), *cluster_concerns(facts, summaries)]
        return {"cluster": {**facts, "concerns": as_data(concerns)}}


def _sinks(catalog: Catalog) -> list[dict[str, Any]]:
    """What streaming queries and transactions published last; unnamed ones are left out."""
    found = []
    for row in sorted(catalog.sinks.values(), key=lambda one: one.name):
        if row.one_shot:
            continue
        tables = [catalog.table_by_id(table_id) for table_id in row.last]
        names = sorted(str(table.path) for table in tables if table is not None)
        found.append({"name": row.name, "query": row.query_id, "version": row.epoch, "tables": names})
    return found


def _server(catalog: Catalog, server_id: int, summary: dict[str, Any]) -> dict[str, Any]:
    known = catalog.servers.get(server_id)
    addresses = [] if known is None else [f"{one.host}:{one.port}" for one in known.listeners.values()]
    facts = {name: value for name, value in summary.items() if name != "tables"}
    return {"name": f"tablet server {server_id}", "address": ", ".join(addresses), **facts}


def _tables(catalog: Catalog, summaries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for table in sorted(catalog.all_tables(), key=lambda one: one.path):
        parts = [summary["tables"].get(str(table.table_id), {}) for summary in summaries]
        partitions = catalog.partition_count(table.table_id)
        facts: dict[str, Any] = {
            "name": str(table.path),
            "table_id": table.table_id,
            "partitions": partitions,
            "buckets": table.bucket_count * (partitions if table.partitioned else 1),
        }
        lake = [part["lake_lag_rows"] for part in parts if "lake_lag_rows" in part]
        if lake:
            facts["lake_lag_rows"] = None if None in lake else sum(lake)
        for name in SUMS:
            facts[name] = sum(part.get(name, 0) for part in parts)
        rates = [part.get("rates", {}) for part in parts]
        facts["rates"] = {
            name: sum(one.get(name, 0.0) for one in rates) for name in {key for one in rates for key in one}
        }
        keys = [part["keys"] for part in parts if "keys" in part]
        if keys:
            facts["keys"] = {name: sum(one[name] for one in keys) for name in keys[0]}
        found.append(facts)
    return found
