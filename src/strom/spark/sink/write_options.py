"""The options of ``.option(…)`` for writing.

bootstrap.servers, table, user, password    as for reading
delivery            exactly-once (default): staged, then published by one decision; at-least-once: written at once
changeType          the column that says what happens to a row of a primary-key table: +I +U -D, or the words
                    insert, update, upsert, delete. Default: _change_type, where the DataFrame has it
columns             "id, price": only these columns are written (a partial update of a primary-key table)
txnAppId, txnVersion    publish this write once under a name and a version, e.g. the batch id of foreachBatch
sink                a name for a stream that outlives its checkpoint's id; a stream without one is named by its query
lease               how long staged rows wait for their commit: "1h" for streams, "24h" for batches
compression         none, lz4 or zstd; the table's by default
overwrite.partition the partition that mode("overwrite") replaces, {"day": "2026-11-15"}; the whole table without
partitionOverwriteMode  dynamic: mode("overwrite") replaces the partitions that rows are written to, and no others
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

from strom.client.cluster.options import WriterOptions, compression_of
from strom.client.read.changelog import CHANGE_TYPE
from strom.client.write.staging import STAGING
from strom.errors import InvalidRequest
from strom.runtime.units import parse_duration_ms
from strom.spark.connect.options import ConnectOptions, names_of, refuse_unknown, table_name, text_of

Compression = Literal["none", "lz4", "zstd"]
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
STREAM_LEASE_MS = 3_600_000
BATCH_LEASE_MS = 24 * 3_600_000


@dataclass(frozen=True)
class WriteOptions:
    """What is written, and how."""

    server: ConnectOptions
    table: str
    delivery: str = EXACTLY_ONCE
    change_type: str | None = None
    columns: tuple[str, ...] | None = None
    app_id: str | None = None
    version: int | None = None
    sink: str | None = None
    lease_ms: int | None = None
    compression: Compression | None = None
    partition: Mapping[str, str] | None = None
    dynamic: bool = False
    """Whether the partitions that are written to are replaced."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> WriteOptions:
        """From the options; InvalidRequest names the one that cannot be parsed."""
        refuse_unknown(options)
        app_id, version = text_of(options, "txnAppId"), text_of(options, "txnVersion")
        if (app_id is None) != (version is None):
            raise InvalidRequest(
                "txnAppId and txnVersion belong together: a name for the writer, and a number that grows with each "
                "write, e.g. the batch id of foreachBatch"
            )
        if version is not None and not version.isdecimal():
            raise InvalidRequest(
                f"txnVersion is a whole number from 0 on, not {version!r}", option="txnVersion"
            )
        return cls(
            server=ConnectOptions.of(options),
            table=table_name(options),
            delivery=_delivery(options),
            change_type=text_of(options, "changeType"),
            columns=names_of(options, "columns"),
            app_id=app_id,
            version=None if version is None else int(version),
            sink=text_of(options, "sink"),
            lease_ms=_lease(options),
            compression=_compression(options),
            partition=_partition(options),
            dynamic=_dynamic(options),
        )

    @property
    def staged(self) -> bool:
        """Whether rows are staged and then published together."""
        return self.delivery == EXACTLY_ONCE

    @property
    def staging_options(self) -> WriterOptions:
        """For writers into stages."""
        return replace(STAGING, compression=compression_of(self.compression))

    def change_column(self, given: Sequence[str], known: Sequence[str]) -> str | None:
        """The column of a DataFrame that says what happens to its rows; None: all are written."""
        if self.change_type is not None:
            if self.change_type not in given:
                raise InvalidRequest(
                    f"changeType names {self.change_type!r}, which the DataFrame does not have"
                )
            return self.change_type
        return CHANGE_TYPE if CHANGE_TYPE in given and CHANGE_TYPE not in known else None


def _delivery(options: Mapping[str, str]) -> str:
    text = text_of(options, "delivery") or EXACTLY_ONCE
    if text not in (EXACTLY_ONCE, AT_LEAST_ONCE):
        raise InvalidRequest(
            f"delivery is {EXACTLY_ONCE} or {AT_LEAST_ONCE}, not {text!r}", option="delivery"
        )
    return text


def _compression(options: Mapping[str, str]) -> Compression | None:
    text = text_of(options, "compression")
    compression_of(text)
    return None if text is None else cast(Compression, text.lower())


def _lease(options: Mapping[str, str]) -> int | None:
    text = text_of(options, "lease")
    if text is None:
        return None
    try:
        found = parse_duration_ms(text)
    except ValueError as error:
        raise InvalidRequest(f"lease is {text!r:.60}: {error}", option="lease") from None
    if found < 1000:
        raise InvalidRequest(f"lease is at least one second, not {text!r}", option="lease")
    return found


def _partition(options: Mapping[str, str]) -> Mapping[str, str] | None:
    text = text_of(options, "overwrite.partition")
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found:
        raise InvalidRequest(
            f'overwrite.partition is {text!r:.60}: say {{"day": "2026-11-15"}}', option="overwrite.partition"
        )
    return {str(key): str(value) for key, value in found.items()}


def _dynamic(options: Mapping[str, str]) -> bool:
    text = (text_of(options, "partitionOverwriteMode") or "static").lower()
    if text not in ("static", "dynamic"):
        raise InvalidRequest(
            f"partitionOverwriteMode is static or dynamic, not {text!r:.60}", option="partitionOverwriteMode"
        )
    if text == "dynamic" and text_of(options, "overwrite.partition") is not None:
        raise InvalidRequest(
            "overwrite.partition names what is replaced: partitionOverwriteMode=dynamic does not fit"
        )
    return text == "dynamic"
