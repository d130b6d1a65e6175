"""A server that answers for fewer buckets than it was asked about: an error, never a table with fewer rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from client.key_play import KeyPlay, keyed
from client.play import Stay, description_of, play_out, playing
from strom.client.plan.cut import cut_table
from strom.client.plan.key_facts import KeyFacts
from strom.client.plan.log_place import LATEST
from strom.client.plan.offsets import Offsets
from strom.errors import DeletionDisabled, InvalidRequest
from strom.model.bucket import BucketId
from strom.protocol.error_codes import code_of

BUCKETS = [BucketId(7, None, number) for number in range(3)]

Ask = Callable[[Any, Any], Awaitable[object]]

ASKED: dict[str, tuple[str, Ask]] = {
    "offsets": ("ListOffsets", lambda *at: Offsets(*at).at(LATEST, [(bucket, None) for bucket in BUCKETS])),
    "a cut": ("CutBuckets", lambda *at: cut_table(*at, BUCKETS)),
    "facts of keys": ("KeyFacts", lambda *at: KeyFacts(*at).of(BUCKETS)),
}


def answers(call: Any) -> list[Any]:
    found = call.buckets_resp
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("what", ASKED)
@pytest.mark.parametrize("left_out", [0, 2])
def test_a_bucket_that_is_left_out_of_an_answer_is_an_error(what: str, left_out: int) -> None:
    name, ask = ASKED[what]

    async def main() -> None:
        keys = what == "facts of keys"
        async with playing(
            keyed(buckets=3) if keys else description_of(buckets=3), **({"kind": KeyPlay} if keys else {})
        ) as (play, cluster, table):

            async def forgets(call: Any) -> Any:
                answer = await play._answer(call)
                del answers(answer)[left_out]
                return answer

            await ask(cluster, table)
            play.faults[name].append(Stay(forgets))
            with pytest.raises(InvalidRequest, match="leaves a bucket out"):
                await ask(cluster, table)

    play_out(main())


@pytest.mark.parametrize("what", ASKED)
def test_the_error_of_one_bucket_is_the_error_of_the_question(what: str) -> None:
    name, ask = ASKED[what]

    async def main() -> None:
        keys = what == "facts of keys"
        async with playing(
            keyed(buckets=3) if keys else description_of(buckets=3), **({"kind": KeyPlay} if keys else {})
        ) as (play, cluster, table):

            async def fails(call: Any) -> Any:
                answer = await play._answer(call)
                last = answers(answer)[-1]
                last.error_code, last.error_message = code_of(DeletionDisabled("not here")), "not here"
                return answer

            play.faults[name].append(Stay(fails))
            with pytest.raises(DeletionDisabled, match="not here"):
                await ask(cluster, table)

    play_out(main())
