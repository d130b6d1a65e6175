"""An unmodified pyfluss logs in with a password, and is refused with the right code when it is wrong."""

from __future__ import annotations

import fluss
import pyarrow as pa
import pytest

from integration.peer import config, connected, error_code, make_table, poll_rows, run, write
from strom.testing.process import ServerProcess

SCHEMA = pa.schema([("id", pa.int32())])


def sasl(user: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "sasl",
        "security.sasl.mechanism": "PLAIN",
        "security.sasl.username": user,
        "security.sasl.password": password,
    }


@pytest.mark.parametrize("user", ["admin", "alice"])
def test_a_user_with_the_right_password_writes_and_reads(either: ServerProcess, user: str) -> None:
    async def test() -> None:
        async with connected(either.addresses["SASL"], **sasl(user, f"{user}-secret")) as connection:
            nodes = await connection.get_admin().get_server_nodes()
            coordinator = next(node for node in nodes if node.server_type == "CoordinatorServer")
            assert f"{coordinator.host}:{coordinator.port}" == either.addresses["SASL"]
            _, table = await make_table(connection, SCHEMA)
            await write(table, pa.record_batch([pa.array([1, 2, 3], pa.int32())], schema=SCHEMA))
            scanner = await table.new_scan().create_log_scanner()
            scanner.subscribe(0, fluss.EARLIEST_OFFSET)
            assert [record.row["id"] for record in await poll_rows(scanner, 3)] == [1, 2, 3]

    run(test)


@pytest.mark.parametrize(
    ("user", "password"), [("admin", "wrong"), ("nobody", "admin-secret"), ("admin", "x" * 999)]
)
def test_a_wrong_user_or_password_is_refused(either: ServerProcess, user: str, password: str) -> None:
    async def test() -> None:
        with pytest.raises(fluss.FlussError) as refused:
            await fluss.FlussConnection.create(config(either.addresses["SASL"], **sasl(user, password)))
        assert error_code(refused) == fluss.ErrorCode.AUTHENTICATE_EXCEPTION

    run(test)


def test_a_client_without_a_password_gets_nowhere_on_a_listener_that_asks_for_one(
    either: ServerProcess,
) -> None:
    async def test() -> None:
        with pytest.raises(fluss.FlussError):
            await fluss.FlussConnection.create(config(either.addresses["SASL"]))

    run(test)


def test_a_client_with_a_password_is_refused_by_a_listener_without_authentication(
    either: ServerProcess,
) -> None:
    async def test() -> None:
        with pytest.raises(fluss.FlussError):
            await fluss.FlussConnection.create(
                config(either.addresses["CLIENT"], **sasl("admin", "admin-secret"))
            )

    run(test)
