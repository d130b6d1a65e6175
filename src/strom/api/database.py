"""The blocking face of a cluster: connect, databases, tables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from html import escape
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from strom.aio.database import start_server
from strom.aio.transaction import Transaction as Core
from strom.api.session import ConnectTarget, Session
from strom.api.table import Table
from strom.api.transaction import Transaction
from strom.client.admin.admin import DatabaseInfo, SinkStatus, SkippedStage
from strom.client.admin.describing import MergeEngine, SchemaLike
from strom.client.admin.lake_admin import LakeFacts
from strom.client.admin.lake_status import LakeStatus
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

    Raises :class:`strom.errors.Disconnected` at once when nobody answers there. Tables are looked up in ``database``
    unless their name says otherwise.

    >>> db = strom.connect("localhost:9123")
    """
    return Database(Session(ConnectTarget(address, user, password, database, options)))


def open(folder: str | os.PathLike[str], *, database: str = DEFAULT_DATABASE, **settings: object) -> Database:
    """A server inside this process, on a folder: no other program is needed, and one at a time may have it open.

    Settings are those of the server, with ``_`` for ``.`` and ``-``. ``close`` stops the server.

    >>> db = strom.open("my-data", durability="os")
    """
    server = start_server(folder, settings)
    try:
        return Database(Session(ConnectTarget(server.address, None, None, database, None), server))
    except BaseException:
        server.close()
        raise


class Database:
    """A connection to a cluster, with a database whose name may be left out. Made by ``connect`` and ``open``.

    >>> with strom.connect("localhost:9123") as db:
    ...     db.tables()
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return repr(self._session)

    def _repr_html_(self) -> str:
        return f"<b>{escape(repr(self))}</b>"

    @property
    def session(self) -> Session:
        """What its tables share."""
        return self._session

    @property
    def name(self) -> str:
        """The database whose name may be left out."""
        return self._session.target.database

    @property
    def address(self) -> str:
        """Where it is connected to."""
        return self._session.target.address

    # --- databases --------------------------------------------------------------------------------------------

    def databases(self) -> list[str]:
        """The names of all databases.

        >>> db.databases()
        ['fluss']
        """
        return self._session.run(self._session.face.databases())

    def describe_database(self, name: str) -> DatabaseInfo:
        """What a database was created with: its comment and properties of its owner's choosing.

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
        """What stands beside a table: ``t$lake`` (the lake alone), ``t$snapshots``, ``t$offsets``. To be read only.

        >>> db.system_table("events$snapshots").scan().to_pandas()
        """
        from strom.api.system_table import SystemTable

        return SystemTable(self._session, self._session.run(self._session.face.system_table(name)))

    def table(self, name: str) -> Table:
        """A table that exists: ``"events"``, or ``"shop.events"``; also what stands beside one (``system_table``).

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
        """A query over tables, run by DuckDB on what the lake and the servers hold: each row once, at one instant.

        Tables are ``t`` or ``database.t``; beside each stand ``t$lake``, ``t$snapshots`` and ``t$offsets``. Columns
        and filters are pushed to the lake's files and to the servers. Only reading is possible. ``parameters`` fill the
        query's marks: a list for ``?``, a dict for ``$name``. ``at`` (a datetime, or a lake snapshot's id) reads all
        tables as they were; ``FROM t AT (TIMESTAMP => '…')`` one of them. Printed, a result shows its first rows.

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

        With an ``id`` and a ``version`` they are published once, however often the same program is run again. Versions
        of an id grow; give a batch id, a file's number, an offset. ``lease_ms``: how long staged rows are kept while
        nobody commits them.

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

        The cluster is asked, not the lake: it costs a millisecond.

        >>> db.lake("clicks").lag_rows
        0
        """
        return self._session.run(self._session.face.lake(table))

    def lake_rebuild(self, table: str, *, dry_run: bool = False, roll_back: bool = False) -> LakeRebuild:
        """Bring the cluster's record of a table's lake back from the lake itself: it was lost, or is quarantined.

        Nothing changes when the record says what the lake says. ``roll_back``: when somebody else committed to the
        Iceberg table, make the newest snapshot of Strom's its head again; what was committed on top is not in the table
        any more. ``dry_run``: only look.

        >>> db.lake_rebuild("clicks", dry_run=True).changes
        ()
        """
        face = self._session.face
        return self._session.run(face.lake_rebuild(table, dry_run=dry_run, roll_back=roll_back))

    def lake_compact(self, table: str) -> Upkept:
        """Merge the small files of a table's lake, drop what is dead in them, and apply its deletes, all of it at once.

        Rounds do that by themselves, a little at a time (``table.datalake.auto-compaction``).

        >>> db.lake_compact("clicks").files_after
        0
        """
        return self._session.run(self._session.face.lake_compact(table))

    def lake_expire(self, table: str) -> Upkept:
        """Forget old snapshots of a table's lake, and remove files that none names, as its properties say.

        Rounds do that by themselves (``table.datalake.auto-expire-snapshot``).

        >>> db.lake_expire("clicks").snapshots_expired
        0
        """
        return self._session.run(self._session.face.lake_expire(table))

    def lake_drop(self, table: str, *, dry_run: bool = False) -> LakeDrop:
        """Remove from the lake, for good, what is left there of dropped tables of this name: catalog and files.

        Also the lake of a table that exists, if ``table.datalake.enabled`` was set to false: rows that only the lake
        has are lost with it, and tiering begins anew once it is set to true again. ``dry_run``: only look.

        >>> [one.rows for one in db.lake_drop("clicks", dry_run=True).removed]
        [100]
        """
        return self._session.run(self._session.face.lake_drop(table, dry_run=dry_run))

    def backup(
        self, folder: str | os.PathLike[str], *, progress: Progress = lambda copied: None
    ) -> BackupFacts:
        """Copy everything that the server holds at one instant into a new folder, on the server's machine.

        What was acknowledged before is in it, and nothing by halves. Writers pause for moments. ``strom restore`` makes
        a data folder of it again. ``progress`` is told of every file, in another thread.

        >>> db.backup("/backups/monday").size
        """
        return self._session.run(self._session.face.backup(folder, progress=progress))

    def lake_take_over(self) -> LakeOwner | None:
        """Make the lake's warehouse this cluster's. Only when whoever wrote to it before is gone for good; who it was.

        For a data folder that was copied or restored and goes on with a lake outside of it, in place of the original.

        >>> db.lake_take_over()
        """
        return self._session.run(self._session.face.lake_take_over())

    def lake_tables(self) -> list[LakeFacts]:
        """Every table that is in the lake, or is to be (``table.datalake.enabled``), of all databases."""
        return self._session.run(self._session.face.lake_tables())

    def sinks(self, *, every: bool = False) -> list[SinkStatus]:
        """What every sink of a streaming query and every transaction id has published last.

        With ``every``, unnamed transactions and batch writes too, for the short while that they are remembered.

        >>> [sink.name for sink in db.sinks()]
        ['nightly-import']
        """
        return self._session.run(self._session.face.sinks(every=every))

    def drop_sink(self, name: str, *, force: bool = False) -> list[SkippedStage]:
        """Forget what a sink or transaction id has published. A version that is written again is then published again.

        Not while its query or program runs. With ``force``, also when rows of its last version are lost: ``skip_lost``
        first. Returns what was left out.

        >>> db.drop_sink("nightly-import")
        []
        """
        return self._session.run(self._session.face.drop_sink(name, force=force))

    def skip_lost(self, name: str) -> list[SkippedStage]:
        """Let a sink's last version be published without the rows that are lost of it; what was left out.

        A version that was decided holds up its buckets when some of its rows are lost or damaged on a disk. Whatever is
        there is published, and nothing twice; the query or program goes on with its next version.

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
        """Flush and close; raise what went wrong. A server that ``open`` started stops. The second time does nothing.

        >>> db.close()
        """
        self._session.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"and the connection could not be closed in order: {failure}")
