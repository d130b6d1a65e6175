"""The blocking API of a cluster: connect, databases, tables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from strom.aio.database import start_server
from strom.aio.transaction import Transaction as Core
from strom.api.cluster_operations import ClusterOperations
from strom.api.session import ConnectTarget, Session
from strom.api.table import Table
from strom.api.transaction import Transaction
from strom.client.admin.admin import DatabaseInfo, SinkStatus, SkippedStage
from strom.client.admin.describing import MergeEngine, SchemaLike
from strom.client.admin.lake_admin import LakeFacts
from strom.client.admin.lake_status import LakeStatus
from strom.client.cluster.closing import closing_after
from strom.client.cluster.connections import ClientTraffic
from strom.client.cluster.options import ClientOptions
from strom.model.lake.lake_owner import LakeOwner
from strom.model.table import DEFAULT_DATABASE

if TYPE_CHECKING:
    from strom.api.result import Result
    from strom.api.system_table import SystemTable
    from strom.lake.upkeep.lake_admin import LakeDrop, LakeRebuild
    from strom.lake.upkeep.maintenance import Upkept
    from strom.moving.backup import BackupFacts, Progress
    from strom.sql.instants import At
    from strom.sql.parameters import Parameters


def connect(
    address: str = "localhost:9123",
    *,
    user: str | None = None,
    password: str | None = None,
    database: str = DEFAULT_DATABASE,
    options: ClientOptions | None = None,
) -> Database:
    """Connect to a server: ``host:port``, or several with commas.

    Raises :class:`strom.errors.Disconnected` at once if no server answers. Tables are looked up in ``database``
    unless their name says otherwise.

    >>> db = strom.connect("localhost:9123")
    """
    return Database(Session(ConnectTarget(address, user, password, database, options)))


def open(folder: str | os.PathLike[str], *, database: str = DEFAULT_DATABASE, **settings: object) -> Database:
    """Start a server inside this process, on a folder. Only one process at a time may have the folder open.

    Settings are those of the server, with ``_`` for ``.`` and ``-``. ``close`` stops the server.

    >>> db = strom.open("my-data", durability="os")
    """
    server = start_server(folder, settings)
    try:
        return Database(Session(ConnectTarget(server.address, None, None, database, None), server))
    except BaseException:
        server.close()
        raise


class Database(ClusterOperations):
    """A connection to a cluster, with a database whose name may be left out. Made by ``connect`` and ``open``.

    >>> with strom.connect("localhost:9123") as db:
    ...     db.tables()
    """

    def __repr__(self) -> str:
        return repr(self._session)

    def _repr_html_(self) -> str:
        return f"<b>{escape(repr(self))}</b>"

    @property
    def session(self) -> Session:
        """The connection that its tables share."""
        return self._session

    @property
    def name(self) -> str:
        """The database whose name may be left out."""
        return self._session.target.database

    @property
    def address(self) -> str:
        """The address it is connected to."""
        return self._session.target.address

    # --- databases --------------------------------------------------------------------------------------------

    def databases(self) -> list[str]:
        """The names of all databases.

        >>> db.databases()
        ['fluss']
        """
        return self._session.run(self._session.face.databases())

    def describe_database(self, name: str) -> DatabaseInfo:
        """A database's comment and custom properties.

        >>> db.describe_database("shop").comment
        'orders and customers'
        """
        return self._session.run(self._session.face.describe_database(name))

    def create_database(
        self,
        name: str,
        *,
        if_exists: Literal["error", "ignore"] = "error",
        comment: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Create a database.

        >>> db.create_database("shop", comment="orders and customers")
        """
        face = self._session.face
        made = face.create_database(name, if_exists=if_exists, comment=comment, properties=properties)
        self._session.run(made)

    def drop_database(
        self, name: str, *, cascade: bool = False, if_missing: Literal["error", "ignore"] = "error"
    ) -> None:
        """Drop a database; with ``cascade`` its tables too.

        >>> db.drop_database("shop", cascade=True)
        """
        self._session.run(self._session.face.drop_database(name, cascade=cascade, if_missing=if_missing))

    # --- tables -----------------------------------------------------------------------------------------------

    def tables(self, database: str | None = None) -> list[str]:
        """The names of a database's tables.

        >>> db.tables()
        ['events']
        """
        return self._session.run(self._session.face.tables(database))

    def system_table(self, name: str) -> SystemTable:
        """A system table: ``t$lake`` (the lake alone), ``t$snapshots``, ``t$offsets``. Read-only.

        >>> db.system_table("events$snapshots").scan().to_pandas()
        """
        from strom.api.system_table import SystemTable

        return SystemTable(self._session, self._session.run(self._session.face.system_table(name)))

    def table(self, name: str) -> Table:
        """An existing table, ``"events"`` or ``"shop.events"``, or a system table (``system_table``).

        >>> events = db.table("events")
        """
        if "$" in name:
            return self.system_table(name)  # type: ignore[return-value]
        return Table(self._session, self._session.run(self._session.face.table(name)))

    def create_table(
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
        """Create a table: a log, or with ``primary_key`` one whose rows are upserted, deleted and looked up.

        ``schema`` is an Arrow schema, ``{"id": "BIGINT NOT NULL", "name": "STRING"}``, or rows whose columns the table
        gets: a data frame, Arrow, a list of dicts, the path of a Parquet, Arrow, CSV or JSON-lines file. The rows
        themselves are not written: ``db.create_table("t", df).append(df)``. Rows are split by the values
        of ``partition_by``, then over ``buckets`` by the hash of ``bucket_key`` (by chance without one; by the key of a
        primary-key table). ``indexes`` are by name, each on one column or several; more can be added later.
        ``merge_engine`` decides what a second row of a key does: replace the first (None), ``"first_row"``,
        ``"versioned"``, ``"aggregation"``. ``auto_increment`` names a column that the server numbers.

        >>> db.create_table("events", pa.schema([("id", pa.int64()), ("day", pa.string())]), partition_by="day")
        >>> db.create_table("users", {"id": "BIGINT", "city": "STRING"}, primary_key="id", indexes={"by_city": "city"})
        """
        made = self._session.face.create_table(
            name,
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
            if_exists=if_exists,
        )
        return Table(self._session, self._session.run(made))

    def drop_table(self, name: str, *, if_missing: Literal["error", "ignore"] = "error") -> None:
        """Drop a table and its rows.

        >>> db.drop_table("events", if_missing="ignore")
        """
        self._session.run(self._session.face.drop_table(name, if_missing=if_missing))

    # --- SQL --------------------------------------------------------------------------------------------------

    def sql(self, text: str, parameters: Parameters | None = None, *, at: At | None = None) -> Result:
        """Query tables with DuckDB. It reads the lake and the servers together: each row once, at one instant.

        Tables are ``t`` or ``database.t``, and each has ``t$lake``, ``t$snapshots`` and ``t$offsets``. Columns and
        filters are pushed down to the lake's files and the servers. Queries only read. ``parameters`` are a list for
        ``?``, a dict for ``$name``. ``at`` (a datetime, or a lake snapshot's id) reads all tables as they
        were; ``FROM t AT (TIMESTAMP => '…')`` one of them. Printed, a result shows its first rows.

        >>> db.sql("SELECT name, sum(price) FROM events WHERE price > ? GROUP BY name", [10]).to_pandas()
        """
        from strom.aio.sql import house_of
        from strom.api.result import Result
        from strom.sql.query import Query

        session = self._session
        house = house_of(session.face.session, session.background.run)
        return Result(Query(text, house, self.name, parameters, at))

    # --- transactions -----------------------------------------------------------------------------------------

    def transaction(
        self, id: str | None = None, version: int | None = None, *, lease_ms: int | None = None
    ) -> Transaction:
        """Publish rows of many buckets and tables at once: all of them when the ``with`` is left, or none.

        With an ``id`` and a ``version`` they are published once, no matter how often the program runs again. Versions
        of an id grow: use a batch id, a file's number or an offset. ``lease_ms``: how long uncommitted rows are kept.

        >>> with db.transaction("nightly-import", version=7) as tx:
        ...     tx.append("orders", orders)
        ...     tx.upsert("customers", customers)
        """
        face = self._session.face

        async def made() -> Core:
            """On the loop, where a transaction belongs."""
            return face.transaction(id, version, lease_ms=lease_ms)

        return Transaction(self._session.background, self._session.run(made()))

    def lake(self, table: str) -> LakeStatus:
        """How far the lake is behind a table: rows, seconds, the last round, bucket by bucket.

        It asks the cluster, not the lake, and costs a millisecond.

        >>> db.lake("clicks").lag_rows
        0
        """
        return self._session.run(self._session.face.lake(table))

    def lake_rebuild(self, table: str, *, dry_run: bool = False, roll_back: bool = False) -> LakeRebuild:
        """Restore the cluster's record of a table's lake from the lake itself, if it was lost or is quarantined.

        Nothing changes if the record agrees with the lake. ``roll_back``: if somebody else committed to the Iceberg
        table, make Strom's newest snapshot its head again; commits on top of it leave the table. ``dry_run``: only
        look.

        >>> db.lake_rebuild("clicks", dry_run=True).changes
        ()
        """
        face = self._session.face
        return self._session.run(face.lake_rebuild(table, dry_run=dry_run, roll_back=roll_back))

    def lake_compact(self, table: str) -> Upkept:
        """Merge the small files of a table's lake, drop their dead rows, and apply its deletes, all at once.

        Rounds do this by themselves, a little at a time (``table.datalake.auto-compaction``).

        >>> db.lake_compact("clicks").files_after
        0
        """
        return self._session.run(self._session.face.lake_compact(table))

    def lake_expire(self, table: str) -> Upkept:
        """Expire old snapshots of a table's lake and remove files that no snapshot uses, as its properties say.

        Rounds do this by themselves (``table.datalake.auto-expire-snapshot``).

        >>> db.lake_expire("clicks").snapshots_expired
        0
        """
        return self._session.run(self._session.face.lake_expire(table))

    def lake_drop(self, table: str, *, dry_run: bool = False) -> LakeDrop:
        """Remove dropped tables of this name from the lake for good: catalog entries and files.

        Also the lake of an existing table if ``table.datalake.enabled`` is false: rows that only the lake has are lost,
        and tiering starts over if it is set to true again. ``dry_run``: only look.

        >>> [one.rows for one in db.lake_drop("clicks", dry_run=True).removed]
        [100]
        """
        return self._session.run(self._session.face.lake_drop(table, dry_run=dry_run))

    def backup(
        self, folder: str | os.PathLike[str], *, progress: Progress = lambda copied: None
    ) -> BackupFacts:
        """Copy the server's data at one instant into a new folder on the server's machine.

        It has everything that was acknowledged before, and no half transactions. Writers pause briefly. ``strom
        restore`` turns it into a data folder again. ``progress`` is called for every file, in another thread.

        >>> db.backup("/backups/monday").size
        """
        return self._session.run(self._session.face.backup(folder, progress=progress))

    def lake_take_over(self) -> LakeOwner | None:
        """Make this cluster the owner of the lake's warehouse. Returns the previous owner, which must be gone for good.

        For a data folder that was copied or restored and replaces the original, with a lake outside of it.

        >>> db.lake_take_over()
        """
        return self._session.run(self._session.face.lake_take_over())

    def lake_tables(self) -> list[LakeFacts]:
        """The tables of all databases that are in the lake, or soon will be (``table.datalake.enabled``)."""
        return self._session.run(self._session.face.lake_tables())

    def sinks(self, *, every: bool = False) -> list[SinkStatus]:
        """The last version that every streaming sink and every transaction id has published.

        With ``every``, unnamed transactions and batch writes too, as long as they are remembered.

        >>> [sink.name for sink in db.sinks()]
        ['nightly-import']
        """
        return self._session.run(self._session.face.sinks(every=every))

    def drop_sink(self, name: str, *, force: bool = False) -> list[SkippedStage]:
        """Forget what a sink or transaction id has published. A version that is written again is published again.

        Stop its query or program first. With ``force``, even if rows of its last version are lost (see ``skip_lost``).
        Returns what was left out.

        >>> db.drop_sink("nightly-import")
        []
        """
        return self._session.run(self._session.face.drop_sink(name, force=force))

    def skip_lost(self, name: str) -> list[SkippedStage]:
        """Publish a sink's last version without its lost rows. Returns what was left out.

        A decided version blocks its buckets when rows of it are lost or damaged on a disk. This publishes the rest,
        nothing twice; the query or program continues with its next version.

        >>> [lost.reason for lost in db.skip_lost("nightly-import")]
        ['it is not there']
        """
        return self._session.run(self._session.face.skip_lost(name))

    # --- the rest ---------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Wait until all rows given to ``append`` are acknowledged; raise what went wrong first.

        >>> db.flush()
        """
        self._session.run(self._session.face.flush())

    def statistics(self) -> ClientTraffic:
        """Bytes and requests over this connection so far.

        >>> db.statistics().bytes_received
        1520
        """
        return self._session.face.statistics()

    def status(self) -> dict[str, Any]:
        """What the servers say about themselves.

        >>> db.status()
        """
        return self._session.run(self._session.face.status())

    def close(self) -> None:
        """Flush and close; raise a failure. A server that ``open`` started stops. The second time does nothing.

        >>> db.close()
        """
        self._session.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        with closing_after(error, "the connection"):
            self.close()
