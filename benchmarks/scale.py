"""What would 1,000 tablet servers and a million buckets cost? ``python -m benchmarks.scale [--servers N --buckets N]``

Nobody here has 1,000 machines. But the decisions are pure and the metadata are bytes: so the real placement, catalog
and elections run on a cluster of that size in memory, and a real ZooKeeper on loopback has all its entries, which one
tablet server and one coordinator read and follow. With ``--sample`` it has a part of them only, and what was measured
is multiplied.

Expected, and why:

    3,000 leaders elected again    below 5 s: 6 commits of 500 buckets, some 30 ms to decide and 100 ms in ZooKeeper
    ZooKeeper                      about 0.4 GB of nodes: 300 bytes and a path for each entry; Java needs as much again
    watches                        2 for each process, on the head and its children: none for a single bucket
    memory of every server         below 300 MB: each keeps all entries, because each answers metadata calls, but packed
    start of a server              below 10 s of CPU: it reads a million entries and decodes those of its own copies
    start of a coordinator         below 15 s of CPU: it decodes, checks and indexes all of them
    a change that concerns others  some microseconds for an entry at each server: it is kept, not decoded
    bytes between zones            for 1 GB written 2.0 GB to the copies in the other two, 0.67 GB from writers there

Figures of a busy machine: CPU seconds are compared, not the clock, except for ZooKeeper's answers.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from typing import TypeVar

import pyarrow as pa

from benchmarks.harness import cpu_seconds, resident_bytes
from strom.coordinator import commands, keys
from strom.coordinator.catalog import Catalog, ListenerAddress, ServerEntry
from strom.coordinator.coordinator import Coordinator
from strom.coordinator.limits import DecisionLimits
from strom.coordinator.new_copies import STEP_ENTRIES_MAX
from strom.metadata.changes import Put
from strom.metadata.memory import MemoryStore
from strom.metadata.store import MetadataStore
from strom.metadata.zookeeper.options import ZooKeeperOptions
from strom.metadata.zookeeper.store import ZooKeeperStore
from strom.metadata.zookeeper.znodes import ChangedEntry, Deed, NodePaths, encode_change, packed
from strom.model.bucket import BucketId
from strom.model.schema import Schema
from strom.model.table import TableDescription, TablePath
from strom.replication.assignment import ServerLoad, assign
from strom.replication.bucket_entry import Assignment, BucketEntry, encode_bucket
from strom.replication.member import CopyIdentity, Member
from strom.replication.registration import DataDisk, Registration
from strom.runtime.memory import give_back
from strom.server.status.cluster_facts import cluster_facts
from strom.testing.zookeeper import ZooKeeperProcess

T = TypeVar("T")

ZONES = 3
FACTOR = 3
TABLE_BUCKETS = 1_000
ASKED_LEADERS = 3_000
"""Leaders that are lost at once: those of several servers of one zone where one has fewer."""
ROUNDS = 10
COORDINATOR = "coordinator"
A_SERVER = "1"
LIMITS = DecisionLimits(replicated=True, replication_factor_default=FACTOR)


def main() -> None:
    options = _options()
    if options.read:
        read_as(options.read, None if options.read_as == COORDINATOR else int(options.read_as))
        return
    found: dict[str, object] = {"servers": options.servers, "buckets": options.buckets}
    entries = _stage("placement", found, lambda: placed(options.servers, options.buckets))
    found |= shape(entries)
    catalog_figures(options.servers, entries, found)
    with tempfile.TemporaryDirectory(prefix="strom-scale-") as folder:
        sample = min(options.sample or len(entries), len(entries))
        found |= zookeeper_figures(Path(folder), options.servers, entries, sample, found)
    print(json.dumps(found, indent=2))


# --- the cluster -------------------------------------------------------------------------------------------------


def placed(servers: int, buckets: int) -> dict[str, bytes]:
    """The encoded entries of all buckets, as creating tables of 1,000 buckets each would place them."""
    leaders: Counter[int] = Counter()
    copies: Counter[int] = Counter()
    entries: dict[str, bytes] = {}
    for table in range(1, -(-buckets // TABLE_BUCKETS) + 1):
        loads = [ServerLoad(one, f"zone{one % ZONES}", leaders[one], copies[one]) for one in range(servers)]
        count = min(TABLE_BUCKETS, buckets - len(entries))
        for number, wanted in enumerate(assign(loads, count, FACTOR)):
            leaders[wanted[0]] += 1
            copies.update(wanted)
            entries[keys.replicas(BucketId(table, None, number))] = encode_bucket(_entry(wanted))
    return entries


def _entry(wanted: Sequence[int]) -> BucketEntry:
    members = sorted(Member(one, CopyIdentity(_disk(one), 1, 0)) for one in wanted)
    return BucketEntry(
        tuple(Assignment(one, 1) for one in wanted),
        tuple(wanted),
        wanted[0],
        _incarnation(wanted[0]),
        1,
        tuple(members),
    )


@cache
def _disk(server: int) -> str:
    return Random(server).randbytes(16).hex()  # as random as a real one: that is what packing cannot shorten


@cache
def _incarnation(server: int) -> int:
    return 1 + Random(-1 - server).randrange(2**62)


def shape(entries: Mapping[str, bytes]) -> dict[str, object]:
    """What follows from the placement alone."""
    leaders: Counter[int] = Counter()
    crossing = 0
    for value in entries.values():
        wanted = json.loads(value)["wanted"]
        leaders[wanted[0]] += 1
        crossing += sum(one % ZONES != wanted[0] % ZONES for one in wanted[1:])
    return {
        "leaders_of_a_server": [min(leaders.values()), max(leaders.values())],
        "entry_bytes": sum(map(len, entries.values())) / len(entries),
        "cross_zone_gb_per_gb_to_copies": crossing / len(entries),
        "cross_zone_gb_per_gb_from_writers": (ZONES - 1) / ZONES,
    }


# --- the catalog -------------------------------------------------------------------------------------------------


def catalog_figures(servers: int, entries: Mapping[str, bytes], found: dict[str, object]) -> None:
    """What every process does with the entries, and what the active coordinator decides."""
    store = MemoryStore()
    _fill(store, servers, entries)
    coordinator = _stage("catalog", found, lambda: Coordinator(store, LIMITS))
    catalog = coordinator.catalog
    found["catalog_us_per_entry"] = 1e6 * float(str(found["catalog_cpu_s"])) / len(entries)
    dead = range(0, ZONES * max(1, round(ASKED_LEADERS * servers / len(entries))), ZONES)
    led = sum(catalog.replicas.leader_count(one) for one in dead)
    alive = frozenset(range(servers)) - frozenset(dead)
    found["leaders_lost"] = led
    found["commits_to_elect"] = _stage("elect", found, lambda: _elect(coordinator, dead, alive))
    assert not any(coordinator.catalog.replicas.leader_count(one) for one in dead)
    _stage("facts", found, lambda: _facts(coordinator.catalog, alive))


def _fill(store: MetadataStore, servers: int, entries: Mapping[str, bytes]) -> None:
    coordinator = Coordinator(store, LIMITS)
    coordinator.perform(commands.bootstrap, now_ms=0)
    for one in range(servers):
        registration = Registration(one, _incarnation(one), (DataDisk(_disk(one), 0),), f"zone{one % ZONES}")
        address = {"CLIENT": ListenerAddress(f"host{one}", 9123)}
        coordinator.perform(commands.register_server, ServerEntry(one, address, registration))
    description = TableDescription(Schema.from_arrow(pa.schema([("a", pa.int64())])), bucket_count=1)
    for number in range(1, 1 + max(int(key.split("/")[1]) for key in entries)):
        coordinator.perform(commands.create_table, TablePath("fluss", f"t{number}"), description, now_ms=0)
    for some in _some(entries):
        store.commit([], some)


def _some(entries: Mapping[str, bytes]) -> Iterator[list[Put]]:
    puts = (Put(key, value) for key, value in entries.items())
    while some := list(islice(puts, STEP_ENTRIES_MAX)):
        yield some


def _elect(coordinator: Coordinator, dead: Sequence[int], alive: frozenset[int]) -> int:
    commits = 0
    while True:
        done = coordinator.perform(commands.elect_leaders, dead, alive=alive)
        commits += 1
        if not done.left:
            return commits


def _facts(catalog: Catalog, alive: frozenset[int]) -> None:
    assert cluster_facts(catalog, "x", alive)["buckets"]["without_leader"] == 0


# --- ZooKeeper ---------------------------------------------------------------------------------------------------


def zookeeper_figures(
    folder: Path, servers: int, entries: Mapping[str, bytes], sample: int, known: Mapping[str, object]
) -> dict[str, object]:
    """Measured with ``sample`` entries on a real ZooKeeper, multiplied to all."""
    some = dict(islice(entries.items(), sample))
    zookeeper = ZooKeeperProcess(folder, _free_port(), memory_mb=1024 + sample // 500).start()
    try:
        options = ZooKeeperOptions(zookeeper.address)
        store = ZooKeeperStore.open(options)
        began = cpu_seconds(zookeeper.pid)
        for puts in _some(some):
            store.commit([], puts)
        java_us = 1e6 * (cpu_seconds(zookeeper.pid) - began) / len(some)
        commits = [_timed(lambda: store.commit([], next(_some(some)))) for _ in range(ROUNDS)]
        readers = {one: _reader(zookeeper.address, one, store, some) for one in (A_SERVER, COORDINATOR)}
        store.close()
        java_bytes = resident_bytes(zookeeper.pid)
    finally:
        zookeeper.kill()
    times = len(entries) / len(some)
    return {
        **_multiplied(servers, entries, some, commits, known),
        "entries_in_zookeeper": len(some),
        "zookeeper_java_us_per_entry": java_us,
        "zookeeper_resident_gb": java_bytes / 1e9,
        **{
            f"{name}_of_a_{'coordinator' if one == COORDINATOR else 'server'}_{unit}": read[unit] * times
            for one, read in readers.items()
            for name, unit in (
                ("start", "cpu_s"),
                ("start", "clock_s"),
                ("memory", "gb"),
                ("peak", "peak_gb"),
            )
        },
        "us_per_changed_entry_at_a_server": readers[A_SERVER]["us_per_change"],
        "us_per_changed_entry_at_a_coordinator": readers[COORDINATOR]["us_per_change"],
    }


def _reader(address: str, who: str, store: ZooKeeperStore, entries: Mapping[str, bytes]) -> dict[str, float]:
    """A process of its own reads all, so that its memory is known, and then follows the changes of an election."""
    command = [sys.executable, "-m", "benchmarks.scale", "--read", address, "--read-as", who]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        found: dict[str, float] = json.loads(reader.stdout.readline())
        print(f"{who} read: {found}", file=sys.stderr, flush=True)
        step = max(1, len(entries) // ASKED_LEADERS)
        changed = dict(islice(entries.items(), 0, None, step))
        for puts in _some(changed):
            store.commit([], puts)
        print(len(changed), file=reader.stdin, flush=True)
        found["us_per_change"] = float(reader.stdout.readline())
        print(f"{who} followed: {found['us_per_change']} us per entry", file=sys.stderr, flush=True)
    assert reader.returncode == 0
    return found


def read_as(address: str, server_id: int | None) -> None:
    """What a tablet server, or a coordinator, does with the metadata when it starts, and when others change them."""
    before, cpu, clock = resident_bytes(os.getpid()), time.process_time(), time.perf_counter()
    store = ZooKeeperStore.open(ZooKeeperOptions(address))
    coordinator = Coordinator(store, LIMITS, server_id)
    assert len(coordinator.catalog.replicas)
    spent = time.process_time() - cpu
    figures = {"cpu_s": spent, "clock_s": time.perf_counter() - clock}
    figures |= {"peak_gb": (_peak_bytes() - before) / 1e9}
    give_back()  # as a server does when a rush is over
    figures |= {"gb": (resident_bytes(os.getpid()) - before) / 1e9}
    print(json.dumps(figures), flush=True)
    changed = int(sys.stdin.readline())
    coordinator.catch_up()
    print(1e6 * (time.process_time() - cpu - spent) / changed, flush=True)
    store.close()


def _peak_bytes() -> int:
    """The most memory that this process ever had."""
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


def _multiplied(
    servers: int,
    entries: Mapping[str, bytes],
    some: Mapping[str, bytes],
    commits: Sequence[float],
    known: Mapping[str, object],
) -> dict[str, object]:
    paths = NodePaths("/strom")
    stored = sum(len(paths.entry(key)) + len(packed(value)) for key, value in some.items()) / len(some)
    batch = [ChangedEntry(Deed.REPLACED, key, value) for key, value in islice(some.items(), STEP_ENTRIES_MAX)]
    change = len(encode_change(batch))
    commits_needed = int(str(known["commits_to_elect"]))
    commit_s = statistics.median(commits)
    return {
        "zookeeper_commit_of_500_ms": 1000 * commit_s,
        "zookeeper_bytes_of_nodes_and_paths_mb": stored * len(entries) / 1e6,
        "zookeeper_watches": 2 * (servers + 2),
        "change_node_bytes": change,
        "feed_mb_to_all_servers_per_failover": change * commits_needed * servers / 1e6,
        "failover_s": float(str(known["elect_cpu_s"])) + commits_needed * commit_s,
    }


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


# --- measuring ---------------------------------------------------------------------------------------------------


def _stage(name: str, found: dict[str, object], work: Callable[[], T]) -> T:
    """Do the work; note its CPU seconds."""
    began = time.process_time()
    result = work()
    found[f"{name}_cpu_s"] = round(time.process_time() - began, 3)
    print(f"{name}: {found[f'{name}_cpu_s']} s of CPU", file=sys.stderr, flush=True)
    return result


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--servers", type=int, default=1_000)
    parser.add_argument("--buckets", type=int, default=1_000_000)
    parser.add_argument("--read", default="", help="only read what a ZooKeeper at this address holds")
    parser.add_argument("--read-as", default=COORDINATOR, help="a server's id, or the coordinator")
    parser.add_argument("--sample", type=int, default=0, help="entries that go to a real ZooKeeper; 0: all")
    return parser.parse_args()


if __name__ == "__main__":
    main()
