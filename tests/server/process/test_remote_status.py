"""What is told of a tablet process that does not answer: that, and never an error of the whole page."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from strom.errors import Disconnected, RequestTimeout, StromError
from strom.protocol.api_keys import SERVER_METRICS, SERVER_STATUS
from strom.server.process.remote_status import RemoteStatus


class Link:
    """Answers every call alike."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    async def call(self, api: Any, request: Any, **_: Any) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer[api.key]


def status(answer: Any) -> RemoteStatus:
    return RemoteStatus(3, cast(Any, Link(answer)), cast(Any, None), lambda: {"process": 77, "starts": 2})


@pytest.mark.parametrize("error", [Disconnected("it is away"), RequestTimeout("it is away")])
def test_a_process_that_does_not_answer_has_no_metrics_and_its_error_as_summary(error: StromError) -> None:
    async def main() -> None:
        away = status(error)
        assert away.server_id == 3
        assert await away.samples() == []
        assert await away.summary() == {"tables": {}, "error": "it is away"}

    asyncio.run(main())


def test_what_a_process_answers_is_told_with_what_is_known_of_the_process() -> None:
    samples = [["strom_rows_total", {}, 5.0]]
    answers = {
        SERVER_METRICS.key: SimpleNamespace(samples_json=json.dumps(samples).encode()),
        SERVER_STATUS.key: SimpleNamespace(status_json=b'{"tables": {"1": {"rows": 5}}}'),
    }

    async def main() -> None:
        there = status(answers)
        assert await there.samples() == samples
        assert await there.summary() == {"tables": {"1": {"rows": 5}}, "process": 77, "starts": 2}

    asyncio.run(main())
