"""Leaders that are elected though rows may be lost: through the client, on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from server.membership.test_coordinators import simulated
from server.membership.test_operations import STILL, filled
from server.membership.test_tablets import cluster, entries
from strom.errors import Conflict, InvalidRequest
from strom.testing.machines import PORT, SimulatedMachines
from waiting import until


def test_a_person_gives_up_what_only_lost_servers_have_and_it_can_be_read_later() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        database = await machines.connect("operator", f"c1:{PORT}")
        await filled(database)
        number = next(number for number, one in enumerate(entries(machines)) if one.leader == 1)
        with pytest.raises(
            InvalidRequest, match=r"server 1 leads fluss.t bucket \d+: there is nothing to give up"
        ):
            await database.elect("t", number, unclean=2, epoch=entries(machines)[number].epoch)
        machines.kill("t2")
        await until(lambda: [one.server_id for one in entries(machines)[number].in_sync] == [1, 3], 20.0)
        machines.kill("t1")
        machines.kill("t3")  # all that were in sync: nobody may lead by the rules
        await machines.start_tablet("t2", 2)
        await asyncio.sleep(5.0)
        assert await database.losses() == []
        shown, held = await database.copy_positions("t", number)
        assert {one.server: (one.in_sync, one.end) for one in held} == {
            1: (True, None),
            2: (False, 200),
            3: (True, None),
        }
        with pytest.raises(InvalidRequest, match="server 1 does not answer for a copy"):
            await database.elect("t", number, unclean=1, epoch=shown.epoch)
        with pytest.raises(InvalidRequest, match="needs a bucket, a server, and the epoch"):
            await database.elect("t", unclean=2)
        with pytest.raises(Conflict, match="look again"):
            await database.elect("t", number, unclean=2, epoch=shown.epoch - 1)
        assert entries(machines)[number].losses == 0
        (found,) = await database.elect("t", number, unclean=2, epoch=shown.epoch)
        assert (found.leader, entries(machines)[number].losses) == (2, 1)
        (loss,) = await database.losses()
        assert (loss.table, loss.bucket, loss.leader, loss.end, loss.missing) == (
            "fluss.t",
            number,
            2,
            200,
            (1, 3),
        )
        assert loss.by

    simulated(main, **STILL)
