"""How much longer is a restart with 1,000 partitions than with one?

Expected: well under 2 s. A start reads all metadata at once (1,000 rows: tens of milliseconds) and opens no log before
it is asked for; recovery of logs that were open when the server was killed goes on in the background.
"""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa

import strom
from benchmarks.harness import Answer, Bench, Target
from strom.testing.process import ServerProcess

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])


def measure(bench: Bench) -> list[Answer]:
    many = bench.size(full=1000, quick=100)
    with _Folder(bench.folder / "one", 1) as one, _Folder(bench.folder / "many", many) as folder:
        ours, reference = bench.compare(folder.restart, one.restart, "s", repeats=bench.size(7, 1))
        ready = folder.ready_seconds
    extra = ours.median - reference.median
    return [
        Answer(
            question=f"restart after kill -9 with {many} partitions until a row is read: seconds longer",
            figure=ours,
            reference=reference,
            reference_name="with 1 partition",
            ratio=extra,
            target=Target(2.0, at_least=False),
            notes={"ready_seconds": ready, "ratio_is": "difference in seconds"},
        )
    ]


class _Folder:
    def __init__(self, folder: Path, partitions: int) -> None:
        self._partitions = partitions
        self._server = ServerProcess(folder, settings={"durability": "os"})
        self.ready_seconds: list[float] = []

    def __enter__(self) -> _Folder:
        self._server.start()
        with strom.connect(self._server.address) as db:
            table = db.create_table("t", SCHEMA, partition_by=["part"])
            names = [f"p{i:04d}" for i in range(self._partitions)]
            table.append(pa.table({"id": list(range(len(names))), "part": names}, schema=SCHEMA))
            table.flush()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def restart(self) -> float:
        self._server.kill()
        began = time.perf_counter()
        self._server.start()
        self.ready_seconds.append(time.perf_counter() - began)
        with strom.connect(self._server.address) as db:
            last = f"p{self._partitions - 1:04d}"
            assert db.table("t").scan(partitions={"part": last}).to_arrow().num_rows == 1
        return time.perf_counter() - began
