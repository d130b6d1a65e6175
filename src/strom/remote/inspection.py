"""What an object store has of all buckets, and whether it can be read: for people, without any server."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from typing import NamedTuple

from strom.errors import Corrupt
from strom.remote.remote_chain import RemoteChain
from strom.remote.remote_manifest import RemoteManifest
from strom.remote.remote_names import NO_PARTITION, RemoteNames
from strom.remote.segment_reader import SegmentReader
from strom.runtime.objects.object_store import Objects
from strom.runtime.objects.range_reader import RangeBudget, RangeReader


class RemoteBucket(NamedTuple):
    """One bucket's remote log."""

    chain: RemoteChain
    number: int
    manifest: RemoteManifest
    problem: str
    """Why its newest manifest cannot be read; empty: it can."""
    sizes: dict[str, int]
    """The segments that are there, named or not, by name."""

    @property
    def size(self) -> int:
        """Bytes of the segments that the manifest names."""
        return sum(one.size for one in self.manifest.segments)

    @property
    def unnamed(self) -> int:
        """Segments that are there, and neither named nor about to be removed: being uploaded, or left behind."""
        named = {one.name for one in self.manifest.segments} | {one.name for one in self.manifest.retired}
        return len(self.sizes.keys() - named)


async def remote_buckets(objects: Objects) -> AsyncIterator[RemoteBucket]:
    """Every bucket that has a manifest, in the order of their names."""
    found: dict[RemoteNames, dict[str, int]] = defaultdict(dict)
    chained: set[RemoteNames] = set()
    for one in await objects.list():
        names, kind, name = _parsed(one.key)
        if names is not None and kind == "s":
            found[names][name] = one.size
        elif names is not None and kind == "m":
            chained.add(names)
    for names in sorted(
        chained, key=lambda one: (one.cluster, one.table_id, one.partition_id or 0, one.bucket)
    ):
        chain = RemoteChain(objects, names)
        try:
            number, manifest = await chain.head()
            yield RemoteBucket(chain, number, manifest, "", found[names])
        except Corrupt as error:
            yield RemoteBucket(chain, 0, RemoteManifest(0, "", {}), error.message, found[names])


async def problems_of(bucket: RemoteBucket, budget: RangeBudget) -> AsyncIterator[str]:
    """Read everything that a bucket's newest manifest names; yields what cannot be."""
    if bucket.problem:
        yield bucket.problem
    names = bucket.chain.names
    for segment in bucket.manifest.segments:
        key = names.segment(segment.name)
        size = bucket.sizes.get(segment.name)
        if size != segment.size:
            there = "is missing" if size is None else f"has {size} bytes instead of {segment.size}"
            yield f"{key} {there}: offsets {segment.start_offset} to {segment.end_offset}"
            continue
        try:
            await SegmentReader(RangeReader(bucket.chain.objects, budget), key, segment).verify()
        except Corrupt as error:
            yield f"{error.message} (segment of offsets {segment.start_offset} to {segment.end_offset})"
        except FileNotFoundError:
            yield f"{key} went while it was read: offsets {segment.start_offset} to {segment.end_offset}"


def _parsed(key: str) -> tuple[RemoteNames | None, str, str]:
    """The bucket that a key belongs to, m or s, and the name; None for a key that is none of ours."""
    parts = key.split("/")
    if len(parts) != 6 or not parts[1].isdigit() or not parts[3].isdigit():
        return None, "", ""
    cluster, table, partition, bucket, kind, name = parts
    if partition != NO_PARTITION and not partition.isdigit():
        return None, "", ""
    partition_id = None if partition == NO_PARTITION else int(partition)
    return RemoteNames(cluster, int(table), partition_id, int(bucket)), kind, name
