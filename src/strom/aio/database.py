"""The async API of a cluster: databases and tables."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from strom.aio.cluster_operations import ClusterOperations
from strom.aio.session import Session
from strom.aio.table import Table
from strom.aio.transaction import Transaction
from strom.client.admin.admin import DatabaseInfo, SinkStatus, SkippedStage
from strom.client.admin.backup_admin import RENEW_EVERY_S, BackupAdmin
from strom.client.admin.describing import MergeEngine, SchemaLike, describe
from strom.client.admin.lake_admin import LakeAdmin, LakeFacts
from strom.client.admin.lake_status import LakeStatus, lake_status
from strom.client.cluster.closing import closing_after
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.connections import ClientTraffic
from strom.client.cluster.options import ClientOptions
from strom.errors import TableNotFound
from strom.model.lake.lake_owner import LakeOwner
from strom.model.table import DEFAULT_DATABASE, TablePath
from strom.runtime.world import World

if TYPE_CHECKING:
    from strom.aio.sql import Result
    from strom.aio.system_table import SystemTable
    from strom.lake.upkeep.lake_admin import LakeDrop, LakeRebuild
    from strom.lake.upkeep.maintenance import Upkept
    from strom.moving.backup import BackupFacts, Progress
    from strom.server.process.local import LocalServer
    from strom.sql.instants import At
    from strom.sql.parameters import Parameters

OFFLOAD_THREADS = 2


async def connect(
    address: str,
    *,
    user: str | None = None,
    password: str | None = None,
    database: str = DEFAULT_DATABASE,
    options: ClientOptions | None = None,
) -> Database:
    """Connect to a server; see ``strom.connect``."""
    world = World.system(offload_threads=OFFLOAD_THREADS)
    try:
        cluster = await Cluster.connect(world, address, user=user, password=password, options=options)
    except BaseException:
        world.offload.close()
        raise
    return Database(Session(cluster), database)


async def open(
    folder: str | os.PathLike[str], *, database: str = DEFAULT_DATABASE, **settings: object
) -> Database:
    """Start a server inside this process; see ``strom.open``."""
    server = await asyncio.to_thread(start_server, folder, settings)
    try:
        found = await connect(server.address, database=database)
    except BaseException:
        await asyncio.to_thread(server.close)
        raise
    found.server = server
    return found


def start_server(folder: str | os.PathLike[str], settings: Mapping[str, object]) -> LocalServer:
    """Start a server on ``folder``. Settings are named with ``_`` for ``.`` and ``-``."""
    from strom.server.process.local import LocalServer

    return LocalServer(os.fspath(folder), settings).start()


class Database(ClusterOperations):
    """A connection to a cluster, with a database whose name may be left out.

    >>> async with await strom.aio.connect("localhost:9123") as db:
    ...     print(await db.tables())
    """

    def __init__(self, session: Session, name: str) -> None:
        super().__init__(session, name)
        self.server: LocalServer | None = None
        """The server inside this process, after ``open``."""

    def __repr__(self) -> str:
        closed = ", closed" if self.session.closed else ""
        return f"Database({self.name!r} at {self.session.addresses}{closed})"

    @property
    def address(self) -> str:
        """The address it is connected to."""
        return self.session.addresses

    # --- databases --------------------------------------------------------------------------------------------

    async def databases(self) -> list[str]:
        """The names of all databases."""
        return await self.session.admin.databases()

    async def describe_database(self, name: str) -> DatabaseInfo:
        """A database's comment and properties."""
        return await self.session.admin.database(name)

    async def create_database(
        self,
        name: str,
        *,
        if_exists: Literal["error", "ignore"] = "error",
        comment: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Create a database."""
        await self.session.admin.create_database(
            name, ignore_if_exists=if_exists == "ignore", comment=comment, properties=properties
        )

    async def drop_database(
        self, name: str, *, cascade: bool = False, if_missing: Literal["error", "ignore"] = "error"
    ) -> None:
        """Drop a database; with ``cascade`` its tables too."""
        await self.session.admin.drop_database(
            name, ignore_if_missing=if_missing == "ignore", cascade=cascade
        )

    # --- tables -----------------------------------------------------------------------------------------------

    def path(self, name: str) -> TablePath:
        """``"db.t"``, or ``"t"`` in this database."""
        return TablePath.parse(name, self.name)

    async def tables(self, database: str | None = None) -> list[str]:
        """The names of a database's tables."""
        return await self.session.admin.tables(database or self.name)

    async def system_table(self, name: str) -> SystemTable:
        """A system table: ``t$lake``, ``t$snapshots``, ``t$offsets``."""
        from strom.aio.system_table import SystemTable
        from strom.aio.system_tables import split

        first, dot, second = name.partition(".")
        base, kind = split(TablePath(first, second) if dot else TablePath(self.name, first))
        if kind is None:
            raise TableNotFound(
                f"{name} is a table; its system tables are {name}$lake, $snapshots and $offsets"
            )
        base.check()
        return SystemTable(self.session, await self.session.admin.table(base), kind)

    async def table(self, name: str) -> Table:
        """An existing table."""
        if "$" in name:
            return await self.system_table(name)  # type: ignore[return-value]
        return Table(self.session, await self.session.admin.table(self.path(name)))

    async def create_table(
        self,
        name: str,
        schema: SchemaLike,
        *,
        partition_by: str | Sequence[str] | None = None,
        buckets: int | None = None,
        bucket_key: str | Sequence[str] | None = None,
        primary_key: str | Sequence[str] | None = None,
        indexes: Mapping[str, str | Sequence[str]] | None = None,
        merge_engine: MergeEngine | None = None,
        auto_increment: str | None = None,
        properties: Mapping[str, object] | None = None,
        comment: str | None = None,
        if_exists: Literal["error", "ignore"] = "error",
    ) -> Table:
        """Create a table: a log, or with ``primary_key`` one whose rows are upserted; see ``strom.Database``."""
        description = describe(
            schema,
            partition_by=partition_by,
            buckets=buckets,
            bucket_key=bucket_key,
            primary_key=primary_key,
            indexes=indexes,
            merge_engine=merge_engine,
            auto_increment=auto_increment,
            properties=properties,
            comment=comment,
        )
        ignore = if_exists == "ignore"
        admin = self.session.admin
        info = await admin.create_table(self.path(name), description, ignore_if_exists=ignore)
        return Table(self.session, info)

    async def drop_table(self, name: str, *, if_missing: Literal["error", "ignore"] = "error") -> None:
        """Drop a table and its rows; rows that are still on their way are discarded."""
        path = self.path(name)
        known = self.session.cluster.metadata.tables.get(path)
        await self.session.admin.drop_table(path, ignore_if_missing=if_missing == "ignore")
        writer = None if known is None else self.session.forget_writer(known.table_id)
        if writer is not None:
            await writer.abandon()

    # --- SQL --------------------------------------------------------------------------------------------------

    async def sql(self, text: str, parameters: Parameters | None = None, *, at: At | None = None) -> Result:
        """Query tables with DuckDB; see ``strom.Database.sql``."""
        from strom.aio.sql import make_query

        return await make_query(self.session, text, self.name, parameters, at)

    # --- the lake ---------------------------------------------------------------------------------------------

    async def lake(self, table: str) -> LakeStatus:
        """How far the lake is behind a table; see ``strom.Database.lake``."""
        info = await self.session.admin.table(self.path(table))
        return await lake_status(self.session.cluster, info)

    async def lake_rebuild(
        self, table: str, *, dry_run: bool = False, roll_back: bool = False
    ) -> LakeRebuild:
        """Restore the cluster's record of a table's lake; see ``strom.Database.lake_rebuild``."""
        from strom.lake.upkeep.lake_admin import rebuild_lake

        info = await self.session.admin.table(self.path(table))
        session = self.session
        return await rebuild_lake(
            session.cluster, session.warehouses, info, dry_run=dry_run, roll_back=roll_back
        )

    async def lake_compact(self, table: str) -> Upkept:
        """Merge the files of a table's lake; see ``strom.Database.lake_compact``."""
        from strom.lake.upkeep.lake_admin import compact_lake

        info = await self.session.admin.table(self.path(table))
        return await compact_lake(self.session.cluster, self.session.warehouses, info)

    async def lake_expire(self, table: str) -> Upkept:
        """Expire old snapshots of a table's lake; see ``strom.Database.lake_expire``."""
        from strom.lake.upkeep.lake_admin import expire_lake

        info = await self.session.admin.table(self.path(table))
        return await expire_lake(self.session.cluster, self.session.warehouses, info)

    async def backup(
        self, folder: str | os.PathLike[str], *, progress: Progress = lambda copied: None
    ) -> BackupFacts:
        """Copy the server's data at one instant into a new folder on its machine; see ``strom.Database.backup``."""
        from strom.moving.backup import copy_cut

        world, admin = self.session.cluster.world, BackupAdmin(self.session.cluster)
        cut = await admin.begin()
        try:
            now_ms = world.clock.now_ms()
            copying = asyncio.ensure_future(
                world.offload.run(copy_cut, cut.folder, os.fspath(folder), now_ms, progress)
            )
            while not (await asyncio.wait({copying}, timeout=RENEW_EVERY_S))[0]:
                await admin.renew(cut)
            return await copying
        finally:
            await admin.end(cut)

    async def lake_take_over(self) -> LakeOwner | None:
        """Make this cluster the owner of the lake's warehouse; see ``strom.Database.lake_take_over``."""
        from strom.lake.upkeep.lake_admin import take_over_lake

        return await take_over_lake(self.session.cluster, self.session.warehouses)

    async def lake_drop(self, table: str, *, dry_run: bool = False) -> LakeDrop:
        """Remove dropped tables of a name from the lake; see ``strom.Database.lake_drop``."""
        from strom.lake.upkeep.lake_admin import drop_lake

        session = self.session
        return await drop_lake(session.cluster, session.warehouses, self.path(table), dry_run=dry_run)

    async def lake_tables(self) -> list[LakeFacts]:
        """The tables of all databases that are in the lake, or soon will be."""
        return await LakeAdmin(self.session.cluster).tables()

    # --- transactions -----------------------------------------------------------------------------------------

    def transaction(
        self, id: str | None = None, version: int | None = None, *, lease_ms: int | None = None
    ) -> Transaction:
        """Publish rows of many tables at once, and once; see ``strom.Database.transaction``."""
        return Transaction(self.session, self.name, id, version, lease_ms=lease_ms)

    async def sinks(self, *, every: bool = False) -> list[SinkStatus]:
        """The last version of every sink and transaction id; with ``every``, unnamed transactions too."""
        return await self.session.admin.sinks(every=every)

    async def drop_sink(self, name: str, *, force: bool = False) -> list[SkippedStage]:
        """Forget what a stopped sink or transaction id has published. ``force``: even if rows are lost."""
        return await self.session.admin.drop_sink(name, force=force)

    async def skip_lost(self, name: str) -> list[SkippedStage]:
        """Publish a sink's last version without its lost rows."""
        return await self.session.admin.skip_lost(name)

    # --- the rest ---------------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Wait until all appended rows are acknowledged; raise the first failure."""
        await self.session.flush()

    def statistics(self) -> ClientTraffic:
        """Bytes and requests of this connection so far."""
        return self.session.cluster.traffic()

    async def status(self) -> dict[str, Any]:
        """The state of the servers, as they report it."""
        return await self.session.admin.server_status()

    async def close(self) -> None:
        """Flush and close; raise the first failure. The second time does nothing."""
        try:
            await self.session.close()
        finally:
            if self.server is not None:
                await asyncio.to_thread(self.server.close)

    async def __aenter__(self) -> Database:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        with closing_after(error, "the connection"):
            await self.close()
