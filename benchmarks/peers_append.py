"""How fast do appends arrive in Strom, in Fluss and in Kafka?

Expected: by pyfluss, the client that both speak with, as fast as into Fluss: most of the time is the client's, which
rebuilds every Arrow batch. By our own client three times that. Beside Kafka with a message per row, five times and
more: librdkafka from Python pays about a microsecond for each message, whatever is in it. Beside Kafka with a whole
Arrow batch in a message about even, or we lose: nobody looks into that message, the broker is not Python, and the
client checks nothing. 10 columns of ~90 B rows, 10 k rows a batch, one bucket or partition, one copy, no compression;
everybody acknowledges from the page cache and nobody syncs (Strom `os`, Kafka `acks=1`, Fluss as it comes, `acks=all`
of one copy). Kafka's messages were made before the clock runs; Strom's and Fluss' batches are encoded while it runs.
"""

from __future__ import annotations

from functools import partial

from benchmarks.harness import Answer, Bench
from benchmarks.peer_systems import answers, running, turns
from benchmarks.workload import small_batch

ROWS = 10_000


def measure(bench: Bench) -> list[Answer]:
    count = bench.size(full=100, quick=10)
    work = [small_batch(ROWS, start=i * ROWS) for i in range(count)]
    with running(bench.folder) as systems, systems.ways() as ways:
        appends = {name: partial(way.append, work) for name, way in ways.items()}
        found = turns(bench, systems, appends, count * ROWS)
    return answers("append 10 k-row batches", found, rows=count * ROWS)
