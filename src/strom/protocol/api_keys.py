"""All calls: number, versions, messages, and who answers. One row per call.

Keys below 20000 are the peer's and mean the same; ours begin at 20000. A server advertises the calls it serves
(ApiVersions); a client uses the highest version both sides know. Numbers never change.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from strom.protocol.message import Message
from strom.protocol.messages import (
    connection,
    copies,
    cut,
    damage,
    databases,
    inner,
    keys,
    lake,
    log,
    metadata,
    operations,
    own,
    own_keys,
    partitions,
    rebalance,
    replication,
    stages,
    tables,
)

OWN_KEYS_FROM = 20_000

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


class Role(Enum):
    """Who answers a call."""

    CONNECTION = "connection"  # the listener itself, before any server
    ANY = "any"  # coordinator and tablet servers alike
    COORDINATOR = "coordinator"
    LEADER = "leader"  # the tablet server that leads the bucket
    TABLET_SERVER = "tablet server"  # any of them; only the coordinator calls


@dataclass(frozen=True, eq=False)
class Api(Generic[Request, Response]):
    """One call."""

    key: int
    name: str
    role: Role
    request: type[Request]
    response: type[Response]
    min_version: int = 0
    max_version: int = 0
    waits: bool = False
    """Answers when there is something to answer; cancelled if the caller disconnects."""

    def __repr__(self) -> str:
        return f"<{self.name} {self.key}>"


APIS: dict[int, Api[Any, Any]] = {}
"""Every call, by key."""


def _api(
    key: int,
    role: Role,
    request: type[Request],
    response: type[Response],
    *,
    version: int = 0,
    waits: bool = False,
) -> Api[Request, Response]:
    name = request.__name__.removesuffix("Request")
    assert response.__name__ == f"{name}Response"
    assert key not in APIS
    row = Api(key, name, role, request, response, max_version=version, waits=waits)
    APIS[key] = row
    return row


API_VERSIONS = _api(1000, Role.CONNECTION, connection.ApiVersionsRequest, connection.ApiVersionsResponse)
AUTHENTICATE = _api(1038, Role.CONNECTION, connection.AuthenticateRequest, connection.AuthenticateResponse)

CREATE_DATABASE = _api(
    1001, Role.COORDINATOR, databases.CreateDatabaseRequest, databases.CreateDatabaseResponse
)
DROP_DATABASE = _api(1002, Role.COORDINATOR, databases.DropDatabaseRequest, databases.DropDatabaseResponse)
LIST_DATABASES = _api(1003, Role.ANY, databases.ListDatabasesRequest, databases.ListDatabasesResponse)
DATABASE_EXISTS = _api(1004, Role.ANY, databases.DatabaseExistsRequest, databases.DatabaseExistsResponse)
GET_DATABASE_INFO = _api(1035, Role.ANY, databases.GetDatabaseInfoRequest, databases.GetDatabaseInfoResponse)

CREATE_TABLE = _api(1005, Role.COORDINATOR, tables.CreateTableRequest, tables.CreateTableResponse)
DROP_TABLE = _api(1006, Role.COORDINATOR, tables.DropTableRequest, tables.DropTableResponse)
GET_TABLE_INFO = _api(1007, Role.ANY, tables.GetTableInfoRequest, tables.GetTableInfoResponse)
LIST_TABLES = _api(1008, Role.ANY, tables.ListTablesRequest, tables.ListTablesResponse)
TABLE_EXISTS = _api(1010, Role.ANY, tables.TableExistsRequest, tables.TableExistsResponse)
GET_TABLE_SCHEMA = _api(1011, Role.ANY, tables.GetTableSchemaRequest, tables.GetTableSchemaResponse)
GET_LAKE_SNAPSHOT = _api(1032, Role.ANY, tables.GetLakeSnapshotRequest, tables.GetLakeSnapshotResponse)

LIST_PARTITION_INFOS = _api(
    1009, Role.ANY, partitions.ListPartitionInfosRequest, partitions.ListPartitionInfosResponse
)
CREATE_PARTITION = _api(
    1036, Role.COORDINATOR, partitions.CreatePartitionRequest, partitions.CreatePartitionResponse
)
DROP_PARTITION = _api(
    1037, Role.COORDINATOR, partitions.DropPartitionRequest, partitions.DropPartitionResponse
)

GET_METADATA = _api(1012, Role.ANY, metadata.GetMetadataRequest, metadata.GetMetadataResponse)
GET_FILE_SYSTEM_SECURITY_TOKEN = _api(
    1025,
    Role.ANY,
    metadata.GetFileSystemSecurityTokenRequest,
    metadata.GetFileSystemSecurityTokenResponse,
)

PRODUCE_LOG = _api(1014, Role.LEADER, log.ProduceLogRequest, log.ProduceLogResponse)
FETCH_LOG = _api(1015, Role.LEADER, log.FetchLogRequest, log.FetchLogResponse, waits=True)
LIST_OFFSETS = _api(1021, Role.LEADER, log.ListOffsetsRequest, log.ListOffsetsResponse)
INIT_WRITER = _api(1026, Role.ANY, log.InitWriterRequest, log.InitWriterResponse)
LIMIT_SCAN = _api(1033, Role.LEADER, log.LimitScanRequest, log.LimitScanResponse)

PUT_KV = _api(1016, Role.LEADER, keys.PutKvRequest, keys.PutKvResponse, version=2)
LOOKUP = _api(1017, Role.LEADER, keys.LookupRequest, keys.LookupResponse, version=1)
PREFIX_LOOKUP = _api(1034, Role.LEADER, keys.PrefixLookupRequest, keys.PrefixLookupResponse, version=1)

ADD_SERVER_TAG = _api(1047, Role.COORDINATOR, rebalance.AddServerTagRequest, rebalance.AddServerTagResponse)
REMOVE_SERVER_TAG = _api(
    1048, Role.COORDINATOR, rebalance.RemoveServerTagRequest, rebalance.RemoveServerTagResponse
)
REBALANCE = _api(1049, Role.COORDINATOR, rebalance.RebalanceRequest, rebalance.RebalanceResponse)
LIST_REBALANCE_PROGRESS = _api(
    1050,
    Role.COORDINATOR,
    rebalance.ListRebalanceProgressRequest,
    rebalance.ListRebalanceProgressResponse,
)
CANCEL_REBALANCE = _api(
    1051, Role.COORDINATOR, rebalance.CancelRebalanceRequest, rebalance.CancelRebalanceResponse
)
GET_CLUSTER_HEALTH = _api(
    1062, Role.COORDINATOR, rebalance.GetClusterHealthRequest, rebalance.GetClusterHealthResponse
)

ALTER_TABLE = _api(20000, Role.COORDINATOR, own.AlterTableRequest, own.AlterTableResponse)
FETCH_ROWS = _api(20001, Role.LEADER, own.FetchRowsRequest, own.FetchRowsResponse, waits=True)
TABLE_STATUS = _api(20002, Role.ANY, own.TableStatusRequest, own.TableStatusResponse)
SERVER_STATUS = _api(20003, Role.ANY, own.ServerStatusRequest, own.ServerStatusResponse)
UPSERT_ROWS = _api(20004, Role.LEADER, own_keys.UpsertRowsRequest, own_keys.UpsertRowsResponse)
LOOKUP_ROWS = _api(20005, Role.LEADER, own_keys.LookupRowsRequest, own_keys.LookupRowsResponse, waits=True)
SCAN_ROWS = _api(20006, Role.LEADER, own_keys.ScanRowsRequest, own_keys.ScanRowsResponse)
KEY_FACTS = _api(20007, Role.LEADER, own_keys.KeyFactsRequest, own_keys.KeyFactsResponse)
LOOKUP_ROW = _api(20008, Role.LEADER, own_keys.LookupRowRequest, own_keys.LookupRowResponse, waits=True)

STAGE_ROWS = _api(20010, Role.LEADER, stages.StageRowsRequest, stages.StageRowsResponse)
DROP_STAGES = _api(20011, Role.LEADER, stages.DropStagesRequest, stages.DropStagesResponse)
BEGIN_SINK = _api(20012, Role.COORDINATOR, stages.BeginSinkRequest, stages.BeginSinkResponse)
DECIDE = _api(20013, Role.COORDINATOR, stages.DecideRequest, stages.DecideResponse)
SNAPSHOT = _api(20014, Role.COORDINATOR, cut.SnapshotRequest, cut.SnapshotResponse)
EXPIRE_STAGES = _api(20015, Role.COORDINATOR, stages.ExpireStagesRequest, stages.ExpireStagesResponse)
APPLY_STAGES = _api(20016, Role.LEADER, stages.ApplyStagesRequest, stages.ApplyStagesResponse)
CUT_BUCKETS = _api(20017, Role.LEADER, cut.CutBucketsRequest, cut.CutBucketsResponse, waits=True)
LIST_SINKS = _api(20018, Role.COORDINATOR, stages.ListSinksRequest, stages.ListSinksResponse)
DROP_SINK = _api(20019, Role.COORDINATOR, stages.DropSinkRequest, stages.DropSinkResponse)

TIERING = _api(20020, Role.COORDINATOR, lake.TieringRequest, lake.TieringResponse)
REPORT_LAKE = _api(20021, Role.COORDINATOR, lake.ReportLakeRequest, lake.ReportLakeResponse)
GET_LAKE = _api(20022, Role.ANY, lake.GetLakeRequest, lake.GetLakeResponse)
RESUME_BUCKET = _api(20023, Role.LEADER, lake.ResumeBucketRequest, lake.ResumeBucketResponse)

BACKUP = _api(20030, Role.COORDINATOR, own.BackupRequest, own.BackupResponse, waits=True)
MARK_DAMAGE = _api(20040, Role.LEADER, damage.MarkDamageRequest, damage.MarkDamageResponse)

REGISTER_SERVER = _api(20050, Role.COORDINATOR, inner.RegisterServerRequest, inner.RegisterServerResponse)
REPORT_FAILED_START = _api(
    20051, Role.COORDINATOR, inner.ReportFailedStartRequest, inner.ReportFailedStartResponse
)
STOP_SERVER = _api(20052, Role.TABLET_SERVER, inner.StopServerRequest, inner.StopServerResponse)
HOLD_BUCKETS = _api(20053, Role.TABLET_SERVER, inner.HoldBucketsRequest, inner.HoldBucketsResponse)
SERVER_METRICS = _api(20054, Role.TABLET_SERVER, inner.ServerMetricsRequest, inner.ServerMetricsResponse)
HEARTBEAT = _api(20055, Role.ANY, inner.HeartbeatRequest, inner.HeartbeatResponse)
FORWARD = _api(20056, Role.ANY, inner.ForwardRequest, inner.ForwardResponse)
LEAVE = _api(20057, Role.COORDINATOR, inner.LeaveRequest, inner.LeaveResponse)
HEAR = _api(20058, Role.ANY, inner.HearRequest, inner.HearResponse)
BUCKET_SIZES = _api(20059, Role.TABLET_SERVER, inner.BucketSizesRequest, inner.BucketSizesResponse)
PULL = _api(20060, Role.LEADER, replication.PullRequest, replication.PullResponse, waits=True)
POSITION = _api(20061, Role.TABLET_SERVER, replication.PositionRequest, replication.PositionResponse)
COPY_BASE = _api(20062, Role.LEADER, replication.CopyBaseRequest, replication.CopyBaseResponse)
COPY_STAGE = _api(20063, Role.LEADER, replication.CopyStageRequest, replication.CopyStageResponse)
LIST_COPIES = _api(20070, Role.COORDINATOR, copies.ListCopiesRequest, copies.ListCopiesResponse)
MOVE_COPIES = _api(20071, Role.COORDINATOR, copies.MoveCopiesRequest, copies.MoveCopiesResponse)
PLAN_REBALANCE = _api(
    20072, Role.COORDINATOR, operations.PlanRebalanceRequest, operations.PlanRebalanceResponse
)
START_REBALANCE = _api(
    20073, Role.COORDINATOR, operations.StartRebalanceRequest, operations.StartRebalanceResponse
)
REBALANCE_PROGRESS = _api(
    20074, Role.COORDINATOR, operations.RebalanceProgressRequest, operations.RebalanceProgressResponse
)
STOP_REBALANCE = _api(
    20075, Role.COORDINATOR, operations.StopRebalanceRequest, operations.StopRebalanceResponse
)
ELECT_LEADER = _api(20076, Role.COORDINATOR, operations.ElectLeaderRequest, operations.ElectLeaderResponse)
COPY_POSITIONS = _api(
    20077, Role.COORDINATOR, operations.CopyPositionsRequest, operations.CopyPositionsResponse
)
LIST_LOSSES = _api(20078, Role.COORDINATOR, operations.ListLossesRequest, operations.ListLossesResponse)

STAGE_APIS = (STAGE_ROWS, DROP_STAGES, BEGIN_SINK, DECIDE, LIST_SINKS, DROP_SINK)
"""The calls of staged writes, as clients make them."""
CUT_APIS = (SNAPSHOT, CUT_BUCKETS)
"""The calls that decide where the reads of a plan end."""
LAKE_APIS = (TIERING, REPORT_LAKE, GET_LAKE, RESUME_BUCKET)
"""The calls of the lake, for tiering services and for readers."""
INNER_APIS = (
    EXPIRE_STAGES,
    APPLY_STAGES,
    REGISTER_SERVER,
    REPORT_FAILED_START,
    STOP_SERVER,
    HOLD_BUCKETS,
    SERVER_METRICS,
    HEARTBEAT,
    FORWARD,
    LEAVE,
    HEAR,
    BUCKET_SIZES,
    PULL,
    POSITION,
    COPY_BASE,
    COPY_STAGE,
)
"""Between the servers of a cluster: only an inner listener takes them."""
KEY_APIS = (PUT_KV, LOOKUP, PREFIX_LOOKUP, UPSERT_ROWS, LOOKUP_ROWS, LOOKUP_ROW, SCAN_ROWS, KEY_FACTS)
"""The calls of primary-key tables."""
_OTHER_APIS = (*KEY_APIS, *STAGE_APIS, *CUT_APIS, *LAKE_APIS, *INNER_APIS)
LOG_APIS = tuple(api for api in APIS.values() if api not in _OTHER_APIS)
"""Everything that a server of log tables answers."""
