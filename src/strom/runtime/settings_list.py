"""Every setting of a server, in the order of the reference (docs/settings.md is generated from this).

Names are the peer's where they mean the same. A setting belongs here when people have a reason to change it;
what nobody would change is a constant beside the code that uses it.
"""

from __future__ import annotations

from strom.runtime.setting import Kind, Setting

SETTINGS: tuple[Setting, ...] = (
    # --- Addresses
    Setting(
        "bind.listeners",
        Kind.LIST,
        "CLIENT://127.0.0.1:9123",
        "Where the server listens: `NAME://host:port`, several with commas. A host that is not loopback "
        "needs a listener with SASL. Port 0 takes any free port.",
        "Addresses",
    ),
    Setting(
        "advertised.listeners",
        Kind.LIST,
        "",
        "The addresses clients are told, by listener name, when they differ from those the server binds.",
        "Addresses",
    ),
    Setting(
        "http.host",
        Kind.STR,
        "127.0.0.1",
        "Where metrics, health and the status page are served.",
        "Addresses",
    ),
    Setting(
        "http.port",
        Kind.INT,
        "9249",
        "Port of metrics, health and the status page; 0 takes any free port, -1 turns them off.",
        "Addresses",
        minimum=-1,
        maximum=65535,
    ),
    # --- Security
    Setting(
        "security.protocol.map",
        Kind.MAP,
        "",
        "Which listeners ask for a password: `NAME:sasl`. All others take anyone (`plaintext`).",
        "Security",
    ),
    Setting(
        "security.sasl.plain.credentials",
        Kind.MAP,
        "",
        "The users of SASL/PLAIN: `user=password,…`, or a TOML table. A value may be `${env:NAME}` or "
        "`${file:path}`, which keeps the password out of this file.",
        "Security",
        secret=True,
    ),
    # --- The server
    Setting(
        "data.dir", Kind.STR, "./strom-data", "The folder that holds everything this server stores.", "Server"
    ),
    Setting(
        "tablet-server.count",
        Kind.INT,
        "1",
        "Tablet-server processes on this machine; buckets are spread over them. With 1, all roles share one "
        "process.",
        "Server",
        minimum=1,
        maximum=256,
    ),
    Setting(
        "server.reader-threads",
        Kind.INT,
        "4",
        "Threads per process for reads too long for the event loop.",
        "Server",
        minimum=1,
        maximum=256,
    ),
    Setting(
        "shutdown.timeout",
        Kind.DURATION,
        "10 s",
        "How long a stopping server waits for calls that are under way.",
        "Server",
        minimum=0,
    ),
    # --- Tables
    Setting(
        "default.bucket.number",
        Kind.INT,
        "1",
        "Buckets of a table that does not say how many it wants.",
        "Tables",
        minimum=1,
    ),
    Setting(
        "default.replication.factor",
        Kind.INT,
        "1",
        "Replicas of a table that does not say how many it wants.",
        "Tables",
        minimum=1,
    ),
    Setting(
        "max.bucket.num",
        Kind.INT,
        "4096",
        "Buckets one table may have, over all its partitions.",
        "Tables",
        minimum=1,
    ),
    Setting("max.partition.num", Kind.INT, "1000", "Partitions one table may have.", "Tables", minimum=1),
    Setting(
        "auto-partition.check.interval",
        Kind.DURATION,
        "10 min",
        "How often partitions are created ahead and expired ones dropped.",
        "Tables",
        minimum=100,
    ),
    # --- The log
    Setting(
        "durability",
        Kind.ENUM,
        "group",
        "What an acknowledged write survives: `os` a killed process, `group` also power loss (one fdatasync "
        "for many writes). A table may choose its own with `table.durability`.",
        "Log",
        choices=("os", "group"),
    ),
    Setting(
        "log.segment.file-size",
        Kind.BYTES,
        "1 gb",
        "A segment larger than this is sealed and a new one begun.",
        "Log",
        minimum=1024,
        maximum=2**31 - 1,
    ),
    Setting(
        "log.segment.roll-age",
        Kind.DURATION,
        "7 d",
        "A segment older than this is sealed, so that retention by time can remove it.",
        "Log",
        minimum=100,
    ),
    Setting(
        "log.index.interval-size",
        Kind.BYTES,
        "4 kb",
        "Bytes of log between two entries of the offset and time indexes.",
        "Log",
        minimum=0,
    ),
    Setting(
        "log.retention.check-interval",
        Kind.DURATION,
        "5 min",
        "How often expired segments are looked for.",
        "Log",
        minimum=100,
    ),
    Setting(
        "log.checkpoint.bytes",
        Kind.BYTES,
        "64 mb",
        "A bucket that took this many bytes writes a checkpoint, which bounds the work of recovery.",
        "Log",
        minimum=1024,
    ),
    Setting(
        "server.writer-id.expiration-time",
        Kind.DURATION,
        "7 d",
        "A writer that sent nothing for this long is forgotten; its retries are no longer recognised.",
        "Log",
        minimum=1000,
    ),
    Setting(
        "data-disk.free-bytes-min",
        Kind.BYTES,
        "64 mb",
        "With less room than this, writes are refused (clients retry) and reads go on.",
        "Log",
        minimum=0,
    ),
    # --- Limits
    Setting(
        "server.request.max-bytes",
        Kind.BYTES,
        "100 mb",
        "The largest request taken.",
        "Limits",
        minimum=1024,
        maximum=2**31 - 1,
    ),
    Setting(
        "server.request.max-bytes-before-login",
        Kind.BYTES,
        "64 kb",
        "The largest request taken from someone who has not logged in, on listeners that ask for it.",
        "Limits",
        minimum=1024,
        maximum=2**31 - 1,
    ),
    Setting("server.connection.max", Kind.INT, "2000", "Connections per process.", "Limits", minimum=1),
    Setting(
        "server.connection.inflight-bytes-max",
        Kind.BYTES,
        "64 mb",
        "Bytes of requests and answers under way on one connection; above it the server stops reading it.",
        "Limits",
        minimum=1024,
    ),
    Setting(
        "server.inflight-bytes-max",
        Kind.BYTES,
        "512 mb",
        "The same for all connections of a process together.",
        "Limits",
        minimum=1024,
    ),
    Setting(
        "server.connection.idle-timeout",
        Kind.DURATION,
        "10 min",
        "A connection that is silent for this long is closed.",
        "Limits",
        minimum=100,
    ),
    Setting(
        "server.fetch.max-bytes",
        Kind.BYTES,
        "16 mb",
        "Record bytes in one fetch answer, whatever the client asks for; one larger batch is still sent.",
        "Limits",
        minimum=1024,
        maximum=2**31 - 1,
    ),
    Setting(
        "server.batch.decompressed-bytes-max",
        Kind.BYTES,
        "256 mb",
        "What one batch may grow to when it is decompressed.",
        "Limits",
        minimum=1024,
    ),
    Setting(
        "server.projection.columns-max",
        Kind.INT,
        "2000",
        "Columns one fetch may ask for.",
        "Limits",
        minimum=1,
    ),
    Setting(
        "server.predicate.depth-max",
        Kind.INT,
        "32",
        "How deep a row filter may be nested.",
        "Limits",
        minimum=1,
        maximum=200,
    ),
    Setting(
        "server.predicate.nodes-max",
        Kind.INT,
        "1000",
        "How many parts (comparisons, list items) a row filter may have.",
        "Limits",
        minimum=1,
    ),
)
