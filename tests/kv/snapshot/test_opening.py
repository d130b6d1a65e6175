"""Opening a primary-key bucket whose files are not what was written: replayed where the changelog has it all.

Where it has not, refused: never a table with rows missing, and never an error without a type.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from strom.errors import Corrupt, NewerFormat, StorageOffline, StoreCorrupt
from strom.kv.definition import KeyDefinition
from strom.kv.runs.run_layout import RunRef
from strom.kv.snapshot.manifest import (
    MANIFEST_FORMAT,
    MANIFEST_HEADER,
    MANIFEST_NAME,
    MANIFEST_VERSION,
    Manifest,
    SeriesRef,
    ShardRef,
    decode_manifest,
)
from strom.log.settings import LogSettings
from strom.model.bucket import BucketId
from strom.model.schema import Schema
from strom.record.batch import BatchLimits
from strom.record.checksum import crc32c
from strom.runtime.files import LocalFiles
from strom.tablet.key_scan import ScanRequest
from strom.tablet.key_settings import KeySettings
from strom.tablet.key_tablet import KeyTablet

SCHEMA = Schema.from_arrow(pa.schema([("id", pa.int64()), ("name", pa.string())]), primary_key=["id"])
SETTINGS = KeySettings(segment_bytes=4_000, snapshot_bytes=1_000, lease_ms=0)


def opened(folder: Path, settings: KeySettings = SETTINGS, limits: BatchLimits | None = None) -> KeyTablet:
    return KeyTablet.open(
        LocalFiles(),
        str(folder),
        BucketId(1, None, 0),
        KeyDefinition((SCHEMA,), key=(0,), image="FULL"),
        durability="os",
        limits=limits or BatchLimits(),
        log_settings=LogSettings(sync_on_roll=False),
        settings=settings,
        now_ms=1_000,
    )


def write(tablet: KeyTablet, start: int, count: int = 50, word: str = "n") -> None:
    names = [f"{word}{number}" for number in range(start, start + count)]
    rows = pa.record_batch([list(range(start, start + count)), names], schema=SCHEMA.to_arrow())
    tablet.upsert(
        rows, None, targets=None, schema_id=1, writer_id=-1, batch_sequence=-1, now_ms=1_000 + start
    )


def upkeep(tablet: KeyTablet) -> None:
    while (job := tablet.next_job(10_000)) is not None:
        job.work()
        job.finish()


def rows_of(tablet: KeyTablet) -> dict[int, str]:
    found = tablet.scan(ScanRequest(), now_ms=10_000)
    assert found.done
    return {row["id"]: row["name"] for batch in found.batches for row in batch.rows.to_pylist()}


def filled(folder: Path, *, expired: bool) -> dict[int, str]:
    """A bucket with a manifest, base files and later rows; ``expired``: its changelog does not have them all."""
    tablet = opened(folder)
    for start in range(0, 400, 50):
        write(tablet, start)
    write(tablet, 0, word="newer")
    upkeep(tablet)
    job = tablet.upkeep.snapshot_job()  # names what was carried
    job.work()
    job.finish()
    if expired:
        assert tablet.expire(now_ms=10**9, ttl_ms=1, bytes_max=None).segments > 0
    write(tablet, 1_000)
    rows = rows_of(tablet)
    tablet.close()
    assert (folder / "kv" / MANIFEST_NAME).exists()
    assert len(rows) == 450
    return rows


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, str]]:
    folder = tmp_path_factory.mktemp("whole")
    return folder, filled(folder, expired=False)


@pytest.fixture(scope="module")
def shortened(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, str]]:
    folder = tmp_path_factory.mktemp("shortened")
    return folder, filled(folder, expired=True)


def damaged(source: Path, target: Path, change: Callable[[bytes], bytes] | None) -> Path:
    """A copy of a bucket whose manifest was changed, or taken away."""
    shutil.copytree(source, target)
    manifest = target / "kv" / MANIFEST_NAME
    if change is None:
        manifest.unlink()
    else:
        manifest.write_bytes(change(manifest.read_bytes()))
    return target


def reworded(**changes: Any) -> Callable[[bytes], bytes]:
    """The same manifest with other words in it, under a right checksum."""

    def change(content: bytes) -> bytes:
        body = json.loads(content[MANIFEST_HEADER.size :])
        octets = json.dumps({**body, **changes}).encode()
        return MANIFEST_HEADER.pack(MANIFEST_FORMAT, crc32c(octets), len(octets)) + octets

    return change


HARM: dict[str, Callable[[bytes], bytes] | None] = {
    "gone": None,
    "empty": lambda content: b"",
    "short": lambda content: content[:-1],
    "longer": lambda content: content + b" ",
    "another file": lambda content: b"STROMXYZ" + content[8:],
    "flipped": lambda content: content[:40] + bytes([content[40] ^ 1]) + content[41:],
}


@pytest.mark.parametrize("harm", HARM)
def test_where_the_changelog_has_everything_a_manifest_can_be_missed(
    harm: str, whole: tuple[Path, dict[int, str]], tmp_path: Path
) -> None:
    folder, rows = whole
    tablet = opened(damaged(folder, tmp_path / "bucket", HARM[harm]))
    assert rows_of(tablet) == rows
    tablet.close()


@pytest.mark.parametrize("harm", HARM)
def test_where_it_has_not_a_bucket_without_its_manifest_is_refused(
    harm: str, shortened: tuple[Path, dict[int, str]], tmp_path: Path
) -> None:
    folder, rows = shortened
    with pytest.raises(StoreCorrupt):
        opened(damaged(folder, tmp_path / "bucket", HARM[harm]))
    tablet = opened(damaged(folder, tmp_path / "sound", lambda content: content))
    assert tablet.start_offset > 0
    assert rows_of(tablet) == rows
    tablet.close()


def test_a_manifest_of_a_newer_version_is_told_as_that(
    whole: tuple[Path, dict[int, str]], tmp_path: Path
) -> None:
    """Also where the changelog has everything: a newer version may have written it in another way."""
    newer = reworded(version=MANIFEST_VERSION + 1)
    with pytest.raises(NewerFormat):
        opened(damaged(whole[0], tmp_path / "bucket", newer))


@pytest.mark.parametrize(
    "words",
    [
        {"offset": 10**6},
        {"carried": 10**6},
        {"carried": 0},
        {"horizon": 10**6},
        {"series_start": 10**6},
        {"base": []},
        {"base": ["base-../../secret"]},
        {"series": []},
    ],
    ids=str,
)
def test_a_manifest_that_contradicts_the_bucket_is_refused(
    words: dict[str, Any], shortened: tuple[Path, dict[int, str]], tmp_path: Path
) -> None:
    with pytest.raises((StoreCorrupt, StorageOffline)):
        opened(damaged(shortened[0], tmp_path / "bucket", reworded(**words)))


@pytest.mark.parametrize("kind", ["base-", "index-", "series-"])
@pytest.mark.parametrize("harm", ["gone", "flipped", "short"])
def test_a_file_that_a_manifest_names_and_that_is_not_what_was_written_is_noticed(
    kind: str, harm: str, shortened: tuple[Path, dict[int, str]], tmp_path: Path
) -> None:
    folder = damaged(shortened[0], tmp_path / "bucket", lambda content: content)
    for path in (folder / "kv").glob(f"{kind}*"):
        content = path.read_bytes()
        path.unlink()
        if harm != "gone":
            middle = len(content) // 2
            flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
            path.write_bytes(flipped if harm == "flipped" else content[:-1])
    with pytest.raises((Corrupt, StorageOffline)):
        rows_of(opened(folder))


def test_what_no_manifest_names_goes_when_a_bucket_is_opened(
    whole: tuple[Path, dict[int, str]], tmp_path: Path
) -> None:
    folder = damaged(whole[0], tmp_path / "bucket", lambda content: content)
    named = {path.name for path in (folder / "kv").iterdir()}
    for name in ("base-left-over", "index-left-over", "manifest.tmp"):
        (folder / "kv" / name).write_bytes(b"half a file")
    tablet = opened(folder)
    assert rows_of(tablet) == whole[1]
    assert {path.name for path in (folder / "kv").iterdir()} <= named
    tablet.close()


GOOD = Manifest(
    number=3,
    offset=30,
    carried=20,
    horizon=15,
    series_start=10,
    base=("base-a",),
    shards=(),
    series=(SeriesRef(5, 20, "series-a", 1), SeriesRef(20, 30, "series-b", 2)),
    epochs=(),
)


RUN = RunRef(0, 0, "index-a", 0, 1, 1, 5, 1)


def test_a_manifest_comes_back_as_it_was() -> None:
    assert decode_manifest(GOOD.encode()) == GOOD
    in_runs = replace(GOOD, runs=(RUN, RUN._replace(position=8192)))
    assert decode_manifest(in_runs.encode()) == in_runs
    in_shards = replace(GOOD, shards=(ShardRef(0, 0, "index-a", 0, 1, 1),))
    assert decode_manifest(in_shards.encode()) == in_shards


@pytest.mark.parametrize(
    "wrong",
    [
        {"horizon": 31},
        {"horizon": 9},
        {"series_start": 16},
        {"series_start": -1},
        {"carried": 31},
        {"carried": -1},
        {"series": GOOD.series[:1]},
        {"series": (GOOD.series[0], SeriesRef(21, 30, "series-b", 2))},
        {"series": (GOOD.series[0], SeriesRef(19, 30, "series-b", 2))},
        {"series": (SeriesRef(11, 20, "series-a", 1), GOOD.series[1])},
        {"series": (*GOOD.series, SeriesRef(30, 30, "series-c", 2))},
        {"base": ("manifest",)},
        {"base": ("base-/../x",)},
        {"shards": (ShardRef(0, 0, "index-a", 0, 1, 1),), "runs": (RUN,)},
        {"runs": (RUN._replace(pages=0),)},
        {"runs": (RUN._replace(entries=0),)},
        {"runs": (RUN._replace(position=-1),)},
        {"runs": (RUN._replace(file="index-/../x"),)},
    ],
    ids=str,
)
def test_a_manifest_whose_parts_do_not_fit_together_is_none(wrong: dict[str, Any]) -> None:
    with pytest.raises(StoreCorrupt):
        decode_manifest(replace(GOOD, **wrong).encode())


def test_a_changelog_that_was_durable_and_is_damaged_is_refused_and_not_cut(tmp_path: Path) -> None:
    """Only what power loss may have taken is cut: after a clean stop everything was there."""
    never = KeySettings(snapshot_bytes=1 << 40, snapshot_ms=1 << 40)
    tablet = opened(tmp_path / "bucket", never)
    for start in (0, 50, 100):
        write(tablet, start)
    tablet.close()
    (path,) = (tmp_path / "bucket").glob("*.log")
    content = bytearray(path.read_bytes())
    content[content.index(b"n60")] ^= 1
    path.write_bytes(content)
    with pytest.raises(Corrupt):
        opened(tmp_path / "bucket", never)
    assert path.read_bytes() == content
