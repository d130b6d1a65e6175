"""Every error of Strom. The first level says what the caller can do.

    StromError
    ├── Retry                   the same call may succeed later
    │   ├── Disconnected        the connection broke, or could not be made
    │   ├── RequestTimeout      no answer within the time given
    │   ├── NotLeader           another server leads this bucket; refresh the metadata
    │   ├── LeaderNotAvailable  nobody leads this bucket right now
    │   │   ├── KernelsCompiling    its server compiles what primary-key tables need, and says how far it is
    │   │   ├── RemoteLogUnavailable    the rows are in the object store, which does not give them right now
    │   │   └── NotCoordinator      another coordinator is the active one, or none is right now
    │   ├── TooFewInSync        fewer copies are in sync than the table requires; nothing was written
    │   ├── TooFewCopiesHeld    written, and on fewer copies than the table requires
    │   ├── NotConfirmed        a strong lookup waits for a copy in sync that does not answer
    │   ├── UnknownBucket       this server does not know the table or bucket (yet)
    │   ├── StorageFull         the disk has no room for writes; reads continue
    │   ├── StorageOffline      this bucket's storage failed and was taken offline
    │   ├── Busy                a bound (connections, bytes in flight) is reached
    │   ├── Conflict            someone else changed the metadata first
    │   ├── OutcomeUnknown      nobody knows whether a commit of the metadata happened
    │   ├── IndexBuilding  NotYetVisible                                    (primary-key tables)
    │   ├── LagUnknown  NotCaughtUp                                         (streams, on this side)
    │   ├── StoreUnavailable    the object store does not answer, or asks to slow down
    │   └── LakeUnavailable  LakeConflict  LakeCommitUnknown                (the lake)
    ├── Refused                 the call is wrong; change it
    │   ├── UnsupportedVersion  InvalidRequest  InvalidAcks  RecordTooLarge  LimitExceeded
    │   ├── DatabaseNotFound  DatabaseNotEmpty  DatabaseExists  InvalidDatabase
    │   ├── TableNotFound  TableExists  SchemaNotFound  InvalidTable  InvalidConfig  InvalidAlter
    │   ├── NotPrimaryKeyTable  TooManyBuckets  SchemaMismatch
    │   ├── PartitionNotFound  PartitionExists  InvalidPartition  TableNotPartitioned  TooManyPartitions
    │   ├── OffsetOutOfRange  InvalidTimestamp  InvalidProjection  InvalidPredicate
    │   ├── AuthenticationFailed  SecurityDisabled  AuthorizationFailed
    │   ├── LakeSnapshotNotFound
    │   ├── Expired  IndexNotFound  DeletionDisabled  InvalidTargets        (primary-key tables)
    │   ├── UnknownServer  TagExists  TagNotFound  RebalanceRunning  NoRebalance        (operating a cluster)
    │   ├── SinkConflict  SinkNotFound  StageExpired  StageNotFound  TableDropped       (staged writes)
    │   ├── LakeUnsupported  LakeForeignCommit  LakeAhead  LakeQuarantined  LakeDisabled  LakeOfAnotherTable
    │   │   LakeOfAnotherCluster                                              (the lake)
    │   ├── InvalidQuery  ReadOnlyQuery  NotInstalled                       (SQL, on this side)
    │   ├── StoreRefused        the object store: credentials, bucket, region or clock are wrong
    │   └── InvalidSetting  FolderInUse  PortInUse  NewerFormat  ForeignMetadata   (starting a server)
    ├── Fenced                  someone newer took over; stop
    │   └── StaleEpoch  UnknownWriter  OutOfOrderSequence
    ├── Corrupt                 bytes are not what was written
    │   └── ChecksumMismatch  TornBatch  MalformedBatch  MetadataCorrupt  StoreCorrupt  LakeCorrupt
    └── Closed                  this object is finished
        └── ConnectionClosed  ServerStopping

Errors of the lake are also a LakeError, whatever the caller can do about them.

Every error carries its facts as fields (``error.facts``), not only a sentence; the sentence says what to change.
The number an error has on the wire is in ``protocol/error_codes.py``.
"""

from __future__ import annotations


class StromError(Exception):
    """The root: a sentence for people and the facts for programs."""

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the facts when an error crosses a process boundary."""
        return (_rebuild, (type(self), self.message, self.facts))


def _rebuild(kind: type[StromError], message: str, facts: dict[str, object]) -> StromError:
    return kind(message, **facts)


class Retry(StromError):
    """The same call may succeed later."""


class Refused(StromError):
    """The call is wrong: change it."""


class Fenced(StromError):
    """Someone newer took over: stop."""


class Corrupt(StromError):
    """Bytes are not what was written."""


class Closed(StromError):
    """This object is finished."""


class Disconnected(Retry):
    """The connection broke, or could not be made."""


class RequestTimeout(Retry):
    """No answer within the time given; the call may or may not have happened."""


class NotLeader(Retry):
    """Another server leads this bucket."""


class LeaderNotAvailable(Retry):
    """Nobody leads this bucket right now."""


COMPILING = "compiling kernels of primary-key tables"
"""How the sentence of KernelsCompiling begins: its number on the wire is that of LeaderNotAvailable, which makes the
peer's clients try again, and this tells ours what they wait for."""


class KernelsCompiling(LeaderNotAvailable):
    """The server compiles what primary-key tables need: once after an installation or upgrade, for seconds."""


class RemoteLogUnavailable(LeaderNotAvailable):
    """The rows are in the object store, which does not give them now. On the wire its parent: all clients try again."""


class TooFewInSync(Retry):
    """Fewer copies of the bucket are in sync than its table requires: nothing was written."""


class NotConfirmed(Retry):
    """A strong lookup waits for a copy in sync that does not answer: another server may lead the bucket by now."""


class TooFewCopiesHeld(Retry):
    """The rows were written, and fewer copies have them than the table requires: they may be lost again."""


class NotCoordinator(LeaderNotAvailable):
    """This coordinator is not the active one (any longer): refresh the metadata, which names it.

    On the wire it is LeaderNotAvailable: the peer has a code of its own for it, and its clients give up on that.
    """


class UnknownBucket(Retry):
    """This server does not know the table or bucket (yet)."""


class StorageFull(Retry):
    """The disk has no room for writes; reads continue."""


class StorageOffline(Retry):
    """This bucket's storage failed and was taken offline."""


class Busy(Retry):
    """A bound of the server is reached: connections, or bytes in flight."""


class Conflict(Retry):
    """Someone else changed the metadata first: read again and decide again."""


class StoreUnavailable(Retry):
    """The object store does not answer, or asks to slow down."""


class OutcomeUnknown(Retry):
    """Nobody knows whether a commit of the metadata happened: read again before deciding again."""


class UnsupportedVersion(Refused):
    """The other side does not know this call, or this version of it."""


class InvalidRequest(Refused):
    """The request cannot be understood."""


class InvalidAcks(Refused):
    """``acks`` is 0, 1 or -1 (all)."""


class RecordTooLarge(Refused):
    """A batch or frame is larger than the limit."""


class LimitExceeded(Refused):
    """A request exceeds a limit (columns, predicate depth, buckets)."""


class DatabaseNotFound(Refused):
    """There is no database of this name."""


class DatabaseNotEmpty(Refused):
    """The database still holds tables."""


class DatabaseExists(Refused):
    """There is a database of this name already."""


class InvalidDatabase(Refused):
    """The database's name or description is not allowed."""


class TableNotFound(Refused):
    """There is no table of this name."""


class TableExists(Refused):
    """There is a table of this name already."""


class SchemaNotFound(Refused):
    """The table has no schema with this id."""


class InvalidTable(Refused):
    """The table's name, schema or description is not allowed."""


class InvalidConfig(Refused):
    """A table property is unknown, malformed, or may not be changed."""


class InvalidAlter(Refused):
    """This change of a table is not possible."""


class NotPrimaryKeyTable(Refused):
    """The call needs a primary-key table, and this is a log table (or the other way round)."""


class TooManyBuckets(Refused):
    """More buckets than ``max.bucket.num``."""


class SchemaMismatch(Refused):
    """The data does not fit the table's schema."""


class PartitionNotFound(Refused):
    """The table has no such partition."""


class PartitionExists(Refused):
    """The table has this partition already."""


class InvalidPartition(Refused):
    """The partition's keys or values are not allowed."""


class TableNotPartitioned(Refused):
    """The table has no partitions."""


class TooManyPartitions(Refused):
    """More partitions than ``max.partition.num``."""


class OffsetOutOfRange(Refused):
    """The log does not hold this offset (expired, or not written yet)."""


class InvalidTimestamp(Refused):
    """The timestamp lies in the future."""


class InvalidProjection(Refused):
    """A projected column does not exist, or the projection is empty."""


class InvalidPredicate(Refused):
    """A filter cannot be read, or does not fit the columns."""


class AuthenticationFailed(Refused):
    """User or password are wrong, or none was given."""


class SecurityDisabled(Refused):
    """This listener has no authentication."""


class AuthorizationFailed(Refused):
    """The user may not do this."""


class LakeSnapshotNotFound(Refused):
    """The table has no lake snapshot."""


class InvalidSetting(Refused):
    """A setting is unknown or has a value that is not allowed."""


class FolderInUse(Refused):
    """Another server runs on this data folder."""


class PortInUse(Refused):
    """Another program listens on this port."""


class NewerFormat(Refused):
    """The folder was written by a newer version."""


class StoreRefused(Refused):
    """The object store refuses: credentials, bucket, region or clock are wrong; ``cause`` says which."""


class ForeignMetadata(Refused):
    """The place for the metadata holds nothing of Strom, or another cluster."""


class StaleEpoch(Fenced):
    """The epoch is older than the bucket's."""


class UnknownWriter(Fenced):
    """The server has no state for this writer id any more."""


class OutOfOrderSequence(Fenced):
    """A batch's sequence does not follow the writer's last one."""


class ChecksumMismatch(Corrupt):
    """A checksum does not fit the bytes it covers."""


class TornBatch(Corrupt):
    """The bytes end before the batch does."""


class MalformedBatch(Corrupt):
    """A batch contradicts itself, or its table's schema."""


class MetadataCorrupt(Corrupt):
    """A metadata value or file is not what was written."""


class ConnectionClosed(Closed):
    """This connection, client or writer was closed."""


class ServerStopping(Closed):
    """The server is going down."""


# --- primary-key tables ----------------------------------------------------------------------------------------


class Expired(Refused):
    """The table is not kept as it was at this offset any more: plan the scan again."""


class IndexBuilding(Retry):
    """The index is still being built."""


class DeletionDisabled(Refused):
    """The table refuses deletes (``table.delete.behavior = disable``)."""


class InvalidTargets(Refused):
    """The columns of a partial update are not allowed: a key column is missing, or the engine takes whole rows."""


class NotYetVisible(Retry):
    """The offset is above the high watermark: wait for it."""


class LagUnknown(Retry):
    """How far a stream is behind is unknown right now; the message says why."""


class NotCaughtUp(Retry):
    """A stream did not come as far as was waited for; ``behind`` is what was still missing."""


class IndexNotFound(Refused):
    """The table has no secondary index of this name, or these columns are no prefix that can be looked up."""


class StoreCorrupt(Corrupt):
    """A file of a primary-key bucket is not what was written."""


class UnknownServer(Refused):
    """The cluster has no tablet server of this number."""


class TagExists(Refused):
    """The server has this tag, or another one, already."""


class TagNotFound(Refused):
    """The server does not have this tag."""


class RebalanceRunning(Refused):
    """A rebalance is under way: wait for its end, or cancel it."""


class NoRebalance(Refused):
    """No rebalance is under way, or none has this id."""


# --- staged writes -------------------------------------------------------------------------------------------------


class SinkConflict(Refused):
    """The sink's name belongs to another query."""


class SinkNotFound(Refused):
    """There is no sink of this name."""


class StageExpired(Refused):
    """A stage was decided after its deadline: stage the rows again."""


class StageNotFound(Refused):
    """The bucket does not hold this stage, or not the pieces before this one: stage the rows again."""


class TableDropped(Refused):
    """A table of the commit was dropped before the commit was decided: nothing of it is published."""


# --- the lake ------------------------------------------------------------------------------------------------------


class LakeError(StromError):
    """Something about a table's copy in the lake; the kinds below say what can be done."""


class LakeUnavailable(LakeError, Retry):
    """The lake's catalog or its storage does not answer."""


class LakeConflict(LakeError, Retry):
    """Another commit reached the lake table first: read its state again and decide again."""


class LakeCommitUnknown(LakeError, Retry):
    """Nobody knows whether a lake commit landed: delete nothing and read the table's state again."""


class LakeUnsupported(LakeError, Refused):
    """The lake's format cannot hold this type or value."""


class LakeForeignCommit(LakeError, Refused):
    """Somebody else changed the rows of a lake table."""


class LakeAhead(LakeError, Refused):
    """The lake holds rows of a bucket that its log has lost."""


class LakeQuarantined(LakeError, Refused):
    """The lake table was found wrong and is left alone until somebody looks at it."""


class LakeDisabled(LakeError, Refused):
    """The table is not copied into the lake (``table.datalake.enabled``)."""


class LakeOfAnotherTable(LakeError, Refused):
    """The lake table of this name belongs to a table that was dropped, or to another cluster's."""


class LakeOfAnotherCluster(LakeError, Refused):
    """The warehouse, or the lake table, belongs to another cluster, or to another copy of this one."""


class LakeCorrupt(LakeError, Corrupt):
    """Files or metadata of a lake table are not what was written."""


# --- SQL -----------------------------------------------------------------------------------------------------------


class InvalidQuery(Refused):
    """The SQL cannot be read, or does not fit the tables."""


class ReadOnlyQuery(Refused):
    """The SQL would change something: it may only read."""


class NotInstalled(Refused):
    """A library that this needs is not installed; the text says how to install it."""
