"""How long after its acknowledgement is a row in the lake, while rows keep coming?

Expected: no later than the table's freshness and two rounds. A row that comes just after a round was cut waits for that
round, for the freshness, and for the next round. One service tiers a table that gets a steady stream and, beside it,
one that gets ten times as much: the heavy one must not make the light one wait.
"""

from __future__ import annotations

import statistics
import threading
import time
from dataclasses import dataclass, field

import strom
from benchmarks import on_lake
from benchmarks.harness import Answer, Bench, Samples, Target
from benchmarks.on_lake import Lake
from benchmarks.workload import SMALL_SCHEMA, small_batch
from strom.lake.iceberg.catalogs import open_catalog
from strom.lake.iceberg.lake_head import read_head
from strom.lake.iceberg.table import LakeTable
from strom.lake.rounds.cluster import TieringCluster
from strom.lake.rounds.service import RoundEnd, RoundListener, TieringOptions
from strom.spark.connect.options import ConnectOptions
from strom.spark.tiering.running import service_of

FRESHNESS_S = 2.0
PAUSE_S = 0.1
LIGHT_ROWS, HEAVY_ROWS = 500, 5_000
"""A batch, ten batches a second."""
LOOK_S = 0.05


def measure(bench: Bench) -> list[Answer]:
    seconds = bench.size(full=90, quick=8)
    with on_lake.place(bench) as lake, TieringCluster(lake.server.address) as cluster:
        server = ConnectOptions(lake.server.address)
        watches = [Watch(lake, "light", LIGHT_ROWS), Watch(lake, "heavy", HEAVY_ROWS)]
        for one in watches:
            one.warm_up()
        once = TieringOptions(once=True)
        service_of(server, cluster, lake.spark, once).run()  # a cold Spark is another question
        took = Rounds()
        options = TieringOptions(beat_s=0.2)
        service = service_of(server, cluster, lake.spark, options, took)
        threads = [threading.Thread(target=service.run)]
        threads += [threading.Thread(target=one.write, args=(seconds,)) for one in watches]
        threads += [threading.Thread(target=one.look) for one in watches]
        for thread in threads:
            thread.start()
        for thread in threads[1:]:
            thread.join()
        service.stop()
        threads[0].join()
    answers = []
    for one in watches:
        rounds = took.seconds[one.table.name]
        longest = max(rounds)
        allowed = FRESHNESS_S + 2 * longest
        late = one.delays()
        figure = Samples(tuple(round(delay, 2) for _, delay in late), "s", float(seconds), 0.0)
        answers.append(
            Answer(
                question=f"acknowledged row in the lake, {one.name} table, the latest of all",
                figure=figure,
                reference=Samples((round(allowed, 2),), "s", 0.0, 0.0),
                reference_name=f"freshness {FRESHNESS_S:g} s and two rounds of {longest:.2f} s",
                ratio=max(figure.values) / allowed,
                target=Target(1.0, at_least=False),
                notes={
                    "rounds": len(rounds),
                    "round seconds, median": round(statistics.median(rounds), 2),
                    "curve (second, seconds until it was in the lake)": late[:: max(1, len(late) // 60)],
                },
            )
        )
    return answers


class Rounds(RoundListener):
    """How long each round took."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def ended(self, end: RoundEnd) -> None:
        if end.given_up:
            return  # under way when the question was answered
        assert end.result is not None, end.error
        self.seconds.setdefault(str(end.assigned.path), []).append(end.result.took["round"])


@dataclass
class Watch:
    """Writes into a table, and looks when what it wrote is in the lake."""

    lake: Lake
    name: str
    rows: int
    table: strom.Table = field(init=False)
    _acknowledged: list[tuple[float, int]] = field(default_factory=list)
    """(when, rows in all)."""
    _seen: list[tuple[float, int]] = field(default_factory=list)
    """(when, rows in the lake)."""
    _over: threading.Event = field(default_factory=threading.Event)
    _began: float = 0.0

    def __post_init__(self) -> None:
        properties = {
            "table.datalake.enabled": "true",
            "table.datalake.freshness": f"{FRESHNESS_S:g} s",
        }
        self.table = self.lake.db.create_table(self.name, SMALL_SCHEMA, buckets=2, properties=properties)

    def warm_up(self) -> None:
        self.table.append(small_batch(self.rows))
        self.table.flush()

    def write(self, seconds: float) -> None:
        self._began = time.monotonic()
        written = self.rows
        while time.monotonic() < self._began + seconds:
            self.table.append(small_batch(self.rows, written))
            self.table.flush()
            written += self.rows
            self._acknowledged.append((time.monotonic(), written))
            time.sleep(PAUSE_S)
        self._over.set()

    def look(self) -> None:
        """Until everything is there."""
        info, facts = self.table.info, self.lake.context.cluster.describe(self.table.info.path)
        assert facts.config is not None
        catalog = open_catalog(facts.config)
        try:
            while not (self._over.is_set() and self._seen and self._seen[-1][1] >= self._acknowledged[-1][1]):
                time.sleep(LOOK_S)
                table = catalog.load(info.path)
                if table is not None:
                    head = read_head(LakeTable(catalog, table, info.path, info.table_id, info.description))
                    held = sum(place.offset for place in head.offsets.values())
                    self._seen.append((time.monotonic(), held))
        finally:
            catalog.close()

    def delays(self) -> list[tuple[float, float]]:
        """(second of the run, seconds until it was in the lake) of every batch."""
        found = []
        at = 0
        for when, rows in self._acknowledged:
            while self._seen[at][1] < rows:
                at += 1
            found.append((round(when - self._began, 1), round(self._seen[at][0] - when, 2)))
        return found
