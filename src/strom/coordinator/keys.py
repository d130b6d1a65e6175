"""The keys of the metadata. One function per kind, so that no key is spelled by hand.

    databases/<name>                        a database
    names/<database>/<table>                the id of the table of this name
    tables/<table id>                       a table, with its newest schema
    schemas/<table id>/<schema id>          a schema that a newer one replaced
    partitions/<table id>/<partition id>    a partition
    servers/<server id>                     a tablet server's addresses and, in a cluster, its registration
    servers/coordinator                     the coordinator's addresses, where there is only one
    coordinator                             the active coordinator of a cluster: its number and addresses
    alive/<server id>                       announced: which process of a tablet server is there
    alive/coordinator-<name>                announced: a coordinator, active or standing by
    counters/<name>                         the next id of a kind
    counters/numbers/<table id>             the next number of a table's auto-increment column
    sinks/<hash of its name>                what a sink decided last
    floors/<table id>                       stages with deadlines up to here can no longer be decided
    lake/<table id>                         what the lake holds of a table, as last reported; a long record begins here
    lake/<table id>/<number>                its further pieces, from 1
    replicas/<table id>/<partition id>/<bucket>   the copies of a bucket; "-" where the table has no partitions
    operations/tags/<server id>             what a person wants of a server: that it leaves, or rests
    operations/rebalance                    the newest rebalance
    operations/moves/<id>/<number>          some of its moves
    operations/losses/<table id>/<partition id>/<bucket>   losses that were declared of a bucket

Names of databases and tables are checked before they become part of a key; nothing else from outside does.
"""

from __future__ import annotations

from hashlib import sha256

from strom.model.bucket import BucketId
from strom.model.table import TablePath

COORDINATOR = "servers/coordinator"
ACTIVE = "coordinator"
ALIVE_COORDINATOR = "coordinator-"
TABLE_COUNTER = "counters/table"
PARTITION_COUNTER = "counters/partition"
WRITER_COUNTER = "counters/writer"
DECISION_COUNTER = "counters/decision"
ROUND_COUNTER = "counters/round"
REBALANCE = "operations/rebalance"


def database(name: str) -> str:
    """The key of a database."""
    return f"databases/{name}"


def name(path: TablePath) -> str:
    """The key of a table's name."""
    return f"names/{path.database}/{path.table}"


def table(table_id: int) -> str:
    """The key of a table."""
    return f"tables/{table_id}"


def schema(table_id: int, schema_id: int) -> str:
    """The key of an older schema."""
    return f"schemas/{table_id}/{schema_id}"


def partition(table_id: int, partition_id: int) -> str:
    """The key of a partition."""
    return f"partitions/{table_id}/{partition_id}"


def server(server_id: int) -> str:
    """The key of a tablet server."""
    return f"servers/{server_id}"


def alive_server(server_id: int) -> str:
    """The key that a tablet server announces."""
    return f"alive/{server_id}"


def alive_coordinator(name: str) -> str:
    """The key that a coordinator announces."""
    return f"alive/{ALIVE_COORDINATOR}{name}"


def number_counter(table_id: int) -> str:
    """The key of a table's auto-increment counter."""
    return f"counters/numbers/{table_id}"


def sink(name: str) -> str:
    """The key of a sink: a hash, because its name comes from outside and may hold anything."""
    return f"sinks/{sha256(name.encode()).hexdigest()[:32]}"


def floor(table_id: int) -> str:
    """The key of a table's floor."""
    return f"floors/{table_id}"


def lake(table_id: int, piece: int = 0) -> str:
    """The key of a table's lake record, or of one of its further pieces."""
    return f"lake/{table_id}/{piece}" if piece else f"lake/{table_id}"


def replicas(bucket: BucketId) -> str:
    """The key of a bucket's copies."""
    return f"replicas/{bucket}"


def tag(server_id: int) -> str:
    """The key of a server's tag."""
    return f"operations/tags/{server_id}"


def moves(rebalance_id: str, piece: int) -> str:
    """The key of some moves of a rebalance."""
    return f"operations/moves/{rebalance_id}/{piece}"


def losses(bucket: BucketId) -> str:
    """The key of the losses that were declared of a bucket."""
    return f"operations/losses/{bucket}"
