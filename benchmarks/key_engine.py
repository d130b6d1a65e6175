"""A primary-key bucket inside this process, on local files, tended as a server tends it."""

from __future__ import annotations

import gc
import os
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from benchmarks.key_rows import Form
from strom.kv.definition import KeyDefinition
from strom.log.settings import LogSettings
from strom.model.bucket import BucketId
from strom.record.batch import BatchLimits
from strom.runtime.files import LocalFiles
from strom.server.process.process_setup import SWITCH_INTERVAL_S
from strom.tablet.key_settings import KeySettings
from strom.tablet.key_tablet import Job, KeyTablet

LOOK_EVERY_S = 0.1
SETTINGS = KeySettings(lease_ms=1000)
"""As the server's, but for a lease that lets updates die within a run that takes seconds, not days."""


class Engine:
    """One tablet and its background work, which runs in a thread of its own beside the writes."""

    def __init__(
        self,
        folder: Path,
        form: Form,
        image: str = "FULL",
        settings: KeySettings = SETTINGS,
        *,
        keeps_log: bool = False,
    ) -> None:
        # As every server's process does: the thread beside the writes must not keep the interpreter for 5 ms.
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self.folder = folder
        self.form = form
        schema = form.model
        self._definition = KeyDefinition(
            (schema,),
            key=tuple(schema.position(name) for name in form.key),
            image=image,  # type: ignore[arg-type]
        )
        self._settings = settings
        self._keeps_log = keeps_log
        self._thread = ThreadPoolExecutor(1)
        self._job: tuple[Job, Future[None]] | None = None
        self._looked = 0.0
        self.tablet = self.open()

    def open(self) -> KeyTablet:
        """Open, or open again."""
        self.tablet = KeyTablet.open(
            LocalFiles(),
            str(self.folder),
            BucketId(1, None, 0),
            self._definition,
            durability="os",
            limits=BatchLimits(),
            log_settings=LogSettings(sync_on_roll=False),
            settings=self._settings,
            now_ms=_now(),
        )
        return self.tablet

    def leave(self) -> None:
        """As a process that ends: nothing is written, and the memory is given back."""
        self.tablet.abandon()
        del self.tablet
        gc.collect()

    def upsert(self, rows: pa.RecordBatch) -> None:
        """One batch, and a look at what is due in the background."""
        self.tablet.upsert(
            rows, None, targets=None, schema_id=1, writer_id=-1, batch_sequence=-1, now_ms=_now()
        )
        if time.perf_counter() - self._looked > LOOK_EVERY_S:
            self.look()

    def put_kv(self, records: bytes) -> None:
        """One batch of the peer's."""
        self.tablet.put_kv(memoryview(records), targets=None, now_ms=_now())
        if time.perf_counter() - self._looked > LOOK_EVERY_S:
            self.look()

    def look(self) -> bool:
        """Finish the job that is done, begin the one that is due; whether there is one."""
        self._looked = time.perf_counter()
        if self._job is not None:
            job, work = self._job
            if not work.done():
                return True
            work.result()
            job.finish()
            self._job = None
        due = self.tablet.next_job(_now())
        if due is not None:
            self._job = due, self._thread.submit(due.work)
        elif not self._keeps_log:
            self.tablet.expire(now_ms=_now(), ttl_ms=0, bytes_max=None)
        return self._job is not None

    def settle(self) -> None:
        """Wait until nothing is due any more."""
        while self.look():
            time.sleep(0.005)

    def disk_bytes(self) -> int:
        """Bytes of the files."""
        return sum(
            os.path.getsize(os.path.join(folder, name))
            for folder, _, names in os.walk(self.folder)
            for name in names
        )

    def close(self) -> None:
        """Wait for the background, then close."""
        if self._job is not None:
            self._job[1].result()
            self._job[0].finish()
            self._job = None
        if not self.tablet.closed:
            self.tablet.close()
        self._thread.shutdown()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _now() -> int:
    return time.time_ns() // 1_000_000
