"""A campaign: a cluster of real processes, load on it, events from a seed, and then the checks.

    make campaign SEED=7 EVENTS=50

The seed decides what happens to whom and how long it lasts; the moments are real, so a second run of a seed is like the
first one but not the same. Every event prints a line; a broken promise says what was seen and where the evidence is.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from pathlib import Path

import strom
from campaign.actor import Actor
from campaign.checks import (
    Broken,
    check_actors,
    check_log,
    check_own_keys,
    check_shared_keys,
    check_tails,
    check_transactions,
    demand,
    is_copied,
    log_rows,
    rows_of,
)
from campaign.copies import check_copies, check_nothing_left
from campaign.false_clock import FalseClock
from campaign.key_actors import (
    COPIED,
    KEYS,
    KeyWriter,
    PlainReader,
    StrongReader,
    make_keys,
)
from campaign.lake import check_lake
from campaign.log_actors import LogTail, LogWriter, make_log
from campaign.pipeline import copying, tier_once, tiering
from campaign.small_disk import SmallDisk, disks_can_be_mounted
from campaign.transaction_actors import TransactionWriter, WholeReader, make_transaction_tables
from campaign.trouble import EVENTS, LONG_S, SHORT_S, Busy, Trouble
from strom.errors import StromError
from strom.testing.cluster_process import ClusterProcess, RoleProcess
from strom.testing.switchboard import Switchboard
from waiting import pause_blocking, until_blocking

TABLETS = 3
BUCKETS = 3
WRITERS = 3
STUCK_S = 120.0
"""What moves is waited for: only what has not changed for so long will not come to its end. Other programs may have
the machine."""
LIFE_S = 300.0
"""For a process to start or to stop; how long stops take is what tests/server/membership tries."""
TOLD_FROM_S = 1.0
SETTINGS = {
    "data-disk.free-bytes-min": "8mb",
    "log.segment.file-size": "256kb",
    "log.checkpoint.bytes": "64kb",
}


@dataclass
class Report:
    """What a campaign did."""

    events: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    operations: int = 0
    own_keys: int = 0
    transactions: int = 0
    batches: int = 0
    lake_rows: int = 0
    actors: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {name}" for name, count in sorted(self.events.items()))
        return (
            f"{self.events.total()} events ({kinds})\n"
            f"{self.rows} acknowledged rows once and in order, {self.operations} operations on keys explained, "
            f"{self.own_keys} keys at their last version, {self.transactions} transactions whole, "
            f"{self.batches} batches equal between copies, {self.lake_rows} rows of the lake as in the log\n"
            + "\n".join(self.actors)
        )


class Campaign:
    """One of them, from its first process to its last check."""

    def __init__(
        self, folder: Path, seed: int, *, pipeline: bool = True, quiet: bool = False, zookeepers: int = 3
    ) -> None:
        self.folder = folder
        self.zookeepers = zookeepers
        self.pipeline = pipeline
        self.seed = seed
        self.report = Report()
        self._quiet = quiet
        self._began = time.monotonic()

    def run(self, events: int, *, seconds: float = float("inf")) -> Report:
        """Let so many events happen, or as many as fit into the time; raises Broken."""
        settings = SETTINGS | {"lake.warehouse": f"file://{self.folder}/lake"}
        disk = SmallDisk(self.folder / "tablet-3") if disks_can_be_mounted() else None
        kept: Path | None = self.folder / "disk-of-tablet-3"
        try:
            with (
                Switchboard() as board,
                closing(
                    ClusterProcess(
                        self.folder,
                        tablets=TABLETS,
                        coordinators=2,
                        zookeepers=self.zookeepers,
                        settings=settings,
                        board=board,
                    )
                ) as cluster,
            ):
                self._live(cluster, board, disk, events, seconds)
                kept = None
        finally:
            if disk is not None:
                disk.close(kept)
        return self.report

    def _live(
        self, cluster: ClusterProcess, board: Switchboard, disk: SmallDisk | None, events: int, seconds: float
    ) -> None:
        clock = self._false_clock(cluster.tablets[2])
        for one in cluster.roles:
            one.start_timeout_s = one.stop_timeout_s = LIFE_S
        cluster.start()
        with strom.connect(cluster.address) as db:
            self._make_tables(db)
            trouble = Trouble(cluster, board, db, self.seed)
            trouble.disk, trouble.clock = disk, clock
            try:
                if self.pipeline:
                    trouble.programs += [start(cluster.address, self.folder) for start in (copying, tiering)]
                actors = self._actors(cluster.address)
                for one in actors:
                    one.start()
                self._events(trouble, actors, events, seconds)
                self._settle(trouble, actors)
                self._check(db, actors)
                self._check_pipeline(trouble)
            except BaseException:
                (self.folder / "output.txt").write_text(cluster.output())
                raise
            finally:
                for program in trouble.programs:
                    program.kill()
        self._check_folders(cluster)

    def _false_clock(self, server: RoleProcess) -> FalseClock:
        """A clock for one server, seen from its next start on."""
        clock = FalseClock(self.folder / "clock")
        server.environment = clock.environment
        return clock

    def _make_tables(self, db: strom.Database) -> None:
        chance = random.Random(self.seed)
        make_log(db, chance.choice(["os", "group"]), BUCKETS)
        make_keys(db, chance.choice(["os", "group"]), BUCKETS)
        make_transaction_tables(db, BUCKETS)

    def _actors(self, address: str) -> list[Actor]:
        seed, numbers = self.seed, range(1, WRITERS + 1)
        return [
            *(LogWriter(one, address, seed) for one in numbers),
            *(KeyWriter(one, address, seed) for one in numbers),
            *(TransactionWriter(one, address, seed) for one in (1, 2)),
            LogTail(1, address, seed),
            PlainReader(1, address, seed, WRITERS),
            WholeReader("whole-reader-1", address, seed),
            *(StrongReader(one, address, seed) for one in numbers),
        ]

    # --- events ------------------------------------------------------------------------------------------------

    def _events(self, trouble: Trouble, actors: list[Actor], events: int, seconds: float) -> None:
        """One event after the other, sometimes two at once."""
        until = time.monotonic() + seconds
        going_on: list[tuple[float, AbstractContextManager[str]]] = []
        while self.report.events.total() < events and time.monotonic() < until:
            self._begin_one(trouble, going_on)
            together = trouble.chance.random() < 0.3
            if not together or len(going_on) > 1:
                self._end_all(going_on)
                pause_blocking(trouble.chance.uniform(*SHORT_S))
            self._look(trouble, actors)
        self._end_all(going_on)

    def _begin_one(self, trouble: Trouble, going_on: list[tuple[float, AbstractContextManager[str]]]) -> None:
        chance = trouble.chance
        name = chance.choices(list(EVENTS), [weight for weight, _ in EVENTS.values()])[0]
        lasts_s = chance.uniform(*(LONG_S if chance.random() < 0.25 else SHORT_S))
        began = time.monotonic()
        try:
            event = EVENTS[name][1](trouble)
            told = event.__enter__()
        except Busy:
            return
        self.report.events[name] += 1
        took_s = time.monotonic() - began
        took = f", begun in {took_s:.1f} s" if took_s > TOLD_FROM_S else ""
        self.say(f"{self.report.events.total():4} {name}: {told}, for {lasts_s:.1f} s{took}")
        going_on.append((time.monotonic() + lasts_s, event))

    def _end_all(self, going_on: list[tuple[float, AbstractContextManager[str]]]) -> None:
        for until, event in sorted(going_on, key=lambda one: one[0]):
            pause_blocking(max(0.0, until - time.monotonic()))
            event.__exit__(None, None, None)
        going_on.clear()

    def _look(self, trouble: Trouble, actors: list[Actor]) -> None:
        """A broken promise ends the campaign at once, so that its evidence is fresh."""
        for program in trouble.programs:
            program.look()
        check_actors(actors)
        wrong = [*trouble.failures, *trouble.ended_by_themselves()]
        demand(not wrong, "\n".join(wrong))

    # --- the end -----------------------------------------------------------------------------------------------

    def _settle(self, trouble: Trouble, actors: list[Actor]) -> None:
        """Everything works again, by itself."""
        trouble.board.heal()
        trouble.wait_started()
        self._look(trouble, actors)
        self.say("all events are over; waiting until all copies are in sync")
        _until_stuck(
            lambda: self._all_in_sync(trouble.db),
            lambda: trouble.db.bucket_copies(),
            "copies are not in sync",
        )
        for one in actors:
            one.over.set()
        for one in actors:
            one.join(STUCK_S)
            demand(not one.is_alive(), f"{one.name} does not come to an end in {STUCK_S} s")
        self.report.actors = [one.told(self._began) for one in actors]

    @staticmethod
    def _all_in_sync(db: strom.Database) -> bool:
        try:
            return not any(one.lacks or one.moving for one in db.bucket_copies())
        except StromError:
            return False

    def _check(self, db: strom.Database, actors: list[Actor]) -> None:
        self.say("checking")
        check_actors(actors)
        losses = [one for one in db.bucket_copies() if one.losses]
        demand(not losses, f"rows were given up though no disk was lost: {losses}")
        writers = [one for one in actors if isinstance(one, LogWriter)]
        keys = [one for one in actors if isinstance(one, KeyWriter)]
        found = log_rows(db)
        self.report.rows = check_log(found, writers)
        check_tails(found, [one for one in actors if isinstance(one, LogTail)])
        plain = [one for one in actors if isinstance(one, PlainReader)]
        self.report.own_keys = check_own_keys(db, keys, plain)
        strong = [one for one in actors if isinstance(one, StrongReader)]
        self.report.operations = check_shared_keys(db, keys, strong, time.monotonic())
        transactions = [one for one in actors if isinstance(one, TransactionWriter)]
        readers = [one for one in actors if isinstance(one, WholeReader)]
        self.report.transactions = check_transactions(db, transactions, readers)

    def _check_pipeline(self, trouble: Trouble) -> None:
        """The copy becomes equal to what was copied, and the lake to the log."""
        if not self.pipeline:
            return
        self.say("waiting for the copy and the lake")
        keys = rows_of(trouble.db, KEYS)

        def copied() -> bool:
            for program in trouble.programs:
                program.look()
            return is_copied(trouble.db)

        _until_stuck(copied, lambda: rows_of(trouble.db, COPIED), f"the copy should be {keys}")
        self.report.actors += [program.told for program in trouble.programs]
        for program in trouble.programs:
            program.kill()
        demand(tier_once(trouble.cluster.address, self.folder) == 0, "strom tier --once failed")
        self.report.lake_rows = check_lake(trouble.db, log_rows(trouble.db))

    def _check_folders(self, cluster: ClusterProcess) -> None:
        codes = cluster.stop()
        demand(codes == [0] * len(codes), f"servers stopped with {codes}")
        folders = {one.folder.name: one.folder for one in cluster.tablets.values()}
        self.report.batches = check_copies(folders, TABLETS)
        check_nothing_left(folders)

    def say(self, line: str) -> None:
        """A line of progress."""
        if not self._quiet:
            print(f"{time.monotonic() - self._began:7.1f} s {line}", flush=True)


def _until_stuck(holds: Callable[[], bool], state: Callable[[], object], wrong: str) -> None:
    """Wait until it holds, for as long as something moves on the way there."""
    known, over = state(), False

    def moved() -> bool:
        nonlocal known, over
        before, over = known, holds()
        known = known if over else state()
        return over or known != before

    while not over:
        try:
            until_blocking(moved, STUCK_S)
        except AssertionError:
            raise Broken(f"{wrong}, and nothing has changed for {STUCK_S} s: {known}") from None


def _copies(db: strom.Database) -> object:
    try:
        return db.bucket_copies()
    except StromError as error:
        return error.message


def main(arguments: list[str]) -> int:
    """``python -m campaign.campaign --seed 7 --events 50`` in ``tests/``."""
    parser = argparse.ArgumentParser(prog="campaign", description="Events at random on a cluster under load.")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--events", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--without-spark", action="store_true", help="no copying stream, no tiering")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that everything is ended and unmounted
    folder = Path(tempfile.mkdtemp(prefix="strom-campaign-"))
    print(f"seed {given.seed}; files in {folder}")
    try:
        print(
            Campaign(folder, given.seed, pipeline=not given.without_spark).run(
                given.events, seconds=given.seconds
            )
        )
    except BaseException:
        traceback.print_exc()
        print(
            f"again: make campaign SEED={given.seed} EVENTS={given.events}; evidence in {folder}", flush=True
        )
        os._exit(1)  # actors that nobody answers any more would hold it up for minutes
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
