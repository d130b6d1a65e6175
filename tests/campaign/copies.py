"""The copies of a bucket on the disks of stopped servers: equal byte by byte, and nothing beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from campaign.checks import demand
from strom.log.opening.inspect import inspect_segment
from strom.runtime.files import LocalFiles

PASSING = (".part", ".copying", ".copied", ".tmp")
"""Names of what is there only while something is made."""


def copies_of(folders: Mapping[str, Path]) -> dict[str, dict[str, Path]]:
    """Bucket -> server -> the folder of its copy."""
    found: dict[str, dict[str, Path]] = {}
    for server, folder in folders.items():
        for copy in sorted(folder.glob("**/buckets/*/*/*/p*")):
            bucket = "/".join(copy.parts[-4:-1])
            others = found.setdefault(bucket, {})
            demand(server not in others, f"{server} has two copies of {bucket}: {others.get(server)}, {copy}")
            others[server] = copy
    return found


def check_copies(folders: Mapping[str, Path], copies: int) -> int:
    """Every bucket has as many copies as it should, and they are equal. Returns how many batches were compared."""
    compared = 0
    for bucket, found in copies_of(folders).items():
        demand(len(found) == copies, f"bucket {bucket} has copies on {sorted(found)} only")
        batches = {server: dict(_batches(folder)) for server, folder in found.items()}
        ends = {server: max(one, default=-1) for server, one in batches.items()}
        demand(len(set(ends.values())) == 1, f"copies of {bucket} end at different batches: {ends}")
        (first, those), *others = batches.items()
        for server, other in others:
            for offset in sorted(those.keys() & other.keys()):
                demand(
                    those[offset] == other[offset],
                    f"bucket {bucket}: the batch at {offset} differs between {first} and {server}",
                )
            compared += len(those.keys() & other.keys())
    return compared


def _batches(folder: Path) -> Iterator[tuple[int, bytes]]:
    """(first offset, bytes) of every batch of a copy."""
    files = LocalFiles()
    for path in sorted(folder.glob("*.log")):
        content = path.read_bytes()
        for one in inspect_segment(files, str(path)):
            demand(one.problem is None and one.header is not None, f"{path} at {one.position}: {one.problem}")
            assert one.header is not None
            yield one.header.base_offset, content[one.position : one.position + one.size]


def check_nothing_left(folders: Mapping[str, Path]) -> None:
    """No file that is there only while something is made, and no stage of a transaction that is over."""
    for folder in folders.values():
        left = [path for path in folder.rglob("*") if path.name.endswith(PASSING)]
        demand(not left, f"left behind: {', '.join(map(str, left[:5]))}")
