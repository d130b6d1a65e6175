"""The number of every error that crosses the wire. One row each; a number never changes and is never used again.

Numbers below 20000 are the peer's, so that its clients know what to do (retry 12, refresh on 21, give up on 4);
ours begin at 20000, and a Fluss client takes them as an unknown error. An error without a row travels as its nearest
ancestor with one, or as -1. KernelsCompiling therefore travels as LeaderNotAvailable, and our clients recognize it by
the beginning of its sentence; NotCoordinator travels so too, because the peer's clients give up on the number that the
peer has for it. Errors of starting a server or of using a closed object have no row: they never travel.
"""

from __future__ import annotations

from strom import errors
from strom.errors import StromError

NONE = 0
OWN_CODES_FROM = 20_000
MESSAGE_CHARACTERS_MAX = 4_000
"""Characters of a sentence on the wire; the rest is cut, so that an error always fits a frame."""

CODES: dict[type[StromError], int] = {
    errors.StromError: -1,
    errors.Disconnected: 1,
    errors.UnsupportedVersion: 2,
    errors.InvalidRequest: 3,
    errors.DatabaseNotFound: 4,
    errors.DatabaseNotEmpty: 5,
    errors.DatabaseExists: 6,
    errors.TableNotFound: 7,
    errors.TableExists: 8,
    errors.SchemaNotFound: 9,
    errors.StorageOffline: 10,
    errors.NotLeader: 12,
    errors.RecordTooLarge: 13,
    errors.ChecksumMismatch: 14,
    errors.InvalidTable: 15,
    errors.InvalidDatabase: 16,
    errors.InvalidAcks: 18,
    errors.OffsetOutOfRange: 19,
    errors.NotPrimaryKeyTable: 20,
    errors.UnknownBucket: 21,
    errors.StaleEpoch: 24,
    errors.RequestTimeout: 25,
    errors.StorageFull: 26,
    errors.TooFewCopiesHeld: 28,
    errors.TooFewInSync: 29,
    errors.OutOfOrderSequence: 31,
    errors.UnknownWriter: 33,
    errors.InvalidProjection: 34,
    errors.InvalidTargets: 35,
    errors.PartitionNotFound: 36,
    errors.TableNotPartitioned: 37,
    errors.InvalidTimestamp: 38,
    errors.InvalidConfig: 39,
    errors.PartitionExists: 42,
    errors.InvalidPartition: 43,
    errors.LeaderNotAvailable: 44,
    errors.TooManyPartitions: 45,
    errors.AuthenticationFailed: 46,
    errors.SecurityDisabled: 47,
    errors.AuthorizationFailed: 48,
    errors.TooManyBuckets: 49,
    errors.LakeSnapshotNotFound: 53,
    errors.InvalidAlter: 56,
    errors.DeletionDisabled: 57,
    errors.UnknownServer: 58,
    errors.TagExists: 59,
    errors.TagNotFound: 60,
    errors.RebalanceRunning: 61,
    errors.NoRebalance: 62,
    errors.Busy: 72,
    errors.LimitExceeded: 20000,
    errors.InvalidPredicate: 20001,
    errors.ServerStopping: 20002,
    errors.Conflict: 20003,
    errors.SchemaMismatch: 20004,
    errors.TornBatch: 20005,
    errors.MalformedBatch: 20006,
    errors.MetadataCorrupt: 20007,
    errors.Expired: 20008,
    errors.IndexBuilding: 20009,
    errors.NotYetVisible: 20010,
    errors.IndexNotFound: 20011,
    errors.StoreCorrupt: 20012,
    errors.SinkConflict: 20013,
    errors.StageExpired: 20014,
    errors.TableDropped: 20015,
    errors.StageNotFound: 20016,
    errors.SinkNotFound: 20017,
    errors.LakeError: 20018,
    errors.LakeUnavailable: 20019,
    errors.LakeConflict: 20020,
    errors.LakeCommitUnknown: 20021,
    errors.LakeUnsupported: 20022,
    errors.LakeForeignCommit: 20023,
    errors.LakeAhead: 20024,
    errors.LakeQuarantined: 20025,
    errors.LakeDisabled: 20026,
    errors.LakeCorrupt: 20027,
    errors.LakeOfAnotherTable: 20028,
    errors.LakeOfAnotherCluster: 20040,
    errors.OutcomeUnknown: 20041,
    errors.NotConfirmed: 20042,
}

_BY_CODE = {code: kind for kind, code in CODES.items()}


def code_of(error: BaseException) -> int:
    """The number an error has on the wire; -1 for one that is not ours."""
    for kind in type(error).__mro__:
        code = CODES.get(kind)
        if code is not None:
            return code
    return -1


def message_of(error: BaseException) -> str:
    """The sentence an error has on the wire. Of an error that is not ours only the type is sent."""
    if not isinstance(error, StromError):
        return f"internal error ({type(error).__name__}); the server's log has the details"
    return error.message[:MESSAGE_CHARACTERS_MAX]


def error_of(code: int, message: str | None) -> StromError:
    """The error behind a number and a sentence from the wire."""
    assert code != NONE
    kind = _BY_CODE.get(code)
    if kind is errors.LeaderNotAvailable and (message or "").startswith(errors.COMPILING):
        kind = errors.KernelsCompiling
    if kind is None or kind is StromError:
        return StromError(message or f"the server reported error {code}", code=code)
    return kind(message or kind.__doc__ or kind.__name__)
