"""What ``/health`` answers: 200 while everything can be read and written, else 503.

healthy     200   nothing to do
degraded    200   all of it works, with less in reserve: a server is gone, copies are lacking (``notes``)
unhealthy   503   something cannot be read or written (``problems``)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from strom.rpc.http_server import HttpAnswer
from strom.runtime.units import counted, rough_size
from strom.server.status.concern import Concern


def health_answer(concerns: Sequence[Concern], *, role: str = "") -> HttpAnswer:
    """The answer of a process; ``role``: which one of a cluster it is."""
    problems = [one.what for one in concerns if one.level == "bad"]
    notes = [one.what for one in concerns if one.level == "note"]
    body: dict[str, Any] = {"status": "unhealthy" if problems else "degraded" if notes else "healthy"}
    body |= {"role": role} if role else {}
    body |= {"problems": problems} | ({"notes": notes} if role else {})
    status = HTTPStatus.SERVICE_UNAVAILABLE if problems else HTTPStatus.OK
    return HttpAnswer(json.dumps(body) + "\n", "application/json", status)


def server_concerns(summaries: Mapping[int, Mapping[str, Any]], *, gone_is_bad: bool) -> Iterator[Concern]:
    """What is wrong with tablet servers, from what each says. ``gone_is_bad``: nobody else has its buckets."""
    for server_id, summary in summaries.items():
        name = f"tablet server {server_id}"
        if summary.get("error") and gone_is_bad:
            yield Concern("bad", "server_gone", f"{name}: {summary['error']}", "see the server's log")
        offline = sum(table["offline"] for table in summary["tables"].values())
        if offline:
            yield Concern(
                "bad", "offline", f"{name}: {counted(offline, 'bucket')} offline", "see the server's log"
            )
        remote = summary.get("remote")
        if remote and remote["failing"]:
            yield Concern(
                "note",
                "remote",
                f"{name}: {counted(remote['failing'], 'bucket')} not uploaded to the object store, "
                f"{rough_size(remote['pending_bytes'])} behind for {remote['behind_s']:.0f} s: {remote['error']}",
                "rows stay on this server's disk until then; see remote.data.dir and `strom remote status`",
            )
        if summary.get("disk_full"):
            free = rough_size(summary["disk_free_bytes"])
            yield Concern(
                "bad", "disk_full", f"{name}: disk full, {free} left: writes are refused", "make room"
            )
