"""An unmodified pyfluss creates, lists, describes and drops databases, tables and partitions."""

from __future__ import annotations

import fluss
import pyarrow as pa
import pytest

from integration.peer import DATABASE, connected, error_code, fresh_path, make_table, run
from strom.testing.process import ServerProcess

SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string())])
DAYS = pa.schema([("id", pa.int32()), ("day", pa.string()), ("region", pa.string())])


def test_servers_are_listed_with_their_roles(either: ServerProcess) -> None:
    async def test() -> None:
        async with connected(either.address) as connection:
            nodes = await connection.get_admin().get_server_nodes()
        kinds = [node.server_type for node in nodes]
        assert kinds.count("CoordinatorServer") == 1
        assert kinds.count("TabletServer") == either.tablets
        coordinator = next(node for node in nodes if node.server_type == "CoordinatorServer")
        assert f"{coordinator.host}:{coordinator.port}" == either.address

    run(test)


def test_a_database_is_created_described_and_dropped(either: ServerProcess) -> None:
    async def test() -> None:
        async with connected(either.address) as connection:
            admin = connection.get_admin()
            name = fresh_path("db").table_name
            assert not await admin.database_exists(name)
            await admin.create_database(name, fluss.DatabaseDescriptor("for tests", {"team": "one"}))
            assert await admin.database_exists(name)
            assert {name, DATABASE} <= set(await admin.list_databases())
            info = await admin.get_database_info(name)
            described = info.get_database_descriptor()
            assert info.database_name == name
            assert (described.comment, described.get_custom_properties()) == ("for tests", {"team": "one"})
            assert 0 < info.created_time <= info.modified_time
            with pytest.raises(fluss.FlussError) as exists:
                await admin.create_database(name)
            assert error_code(exists) == fluss.ErrorCode.DATABASE_ALREADY_EXIST
            await admin.create_database(name, ignore_if_exists=True)
            await admin.drop_database(name)
            assert not await admin.database_exists(name)

    run(test)


def test_a_database_that_holds_tables_is_dropped_only_with_them(either: ServerProcess) -> None:
    async def test() -> None:
        async with connected(either.address) as connection:
            admin = connection.get_admin()
            name = fresh_path("db").table_name
            await admin.create_database(name)
            await admin.create_table(fluss.TablePath(name, "t"), fluss.TableDescriptor(fluss.Schema(SCHEMA)))
            with pytest.raises(fluss.FlussError) as filled:
                await admin.drop_database(name, cascade=False)
            assert error_code(filled) == fluss.ErrorCode.DATABASE_NOT_EMPTY
            await admin.drop_database(name, cascade=True)
            assert not await admin.table_exists(fluss.TablePath(name, "t"))

    run(test)


def test_what_does_not_exist_is_refused_with_the_peers_codes(either: ServerProcess) -> None:
    async def test() -> None:
        async with connected(either.address) as connection:
            admin = connection.get_admin()
            code = fluss.ErrorCode
            nowhere = fluss.TablePath("no_such_database", "t")
            for asked, expected in (
                (admin.drop_database("no_such_database"), code.DATABASE_NOT_EXIST),
                (admin.list_tables("no_such_database"), code.DATABASE_NOT_EXIST),
                (admin.get_table_info(fresh_path("gone")), code.TABLE_NOT_EXIST),
                (admin.drop_table(fresh_path("gone")), code.TABLE_NOT_EXIST),
                (
                    admin.create_table(nowhere, fluss.TableDescriptor(fluss.Schema(SCHEMA))),
                    code.DATABASE_NOT_EXIST,
                ),
            ):
                with pytest.raises(fluss.FlussError) as refused:
                    await asked
                assert error_code(refused) == expected
            await admin.drop_table(fresh_path("gone"), ignore_if_not_exists=True)
            await admin.drop_database("no_such_database", ignore_if_not_exists=True)
            assert not await admin.table_exists(nowhere)

    run(test)


def test_a_table_is_described_as_it_was_created(either: ServerProcess) -> None:
    async def test() -> None:
        async with connected(either.address) as connection:
            admin = connection.get_admin()
            path, table = await make_table(
                connection,
                SCHEMA,
                bucket_count=3,
                bucket_keys=["id"],
                comment="some rows",
                properties={"table.log.ttl": "3 d"},
                custom_properties={"owner": "me"},
            )
            info = await admin.get_table_info(path)
            assert (info.num_buckets, info.get_bucket_keys(), info.comment) == (3, ["id"], "some rows")
            assert info.get_properties()["table.log.ttl"] == "3 d"
            assert info.get_custom_properties() == {"owner": "me"}
            assert info.get_column_names() == ["id", "name"]
            assert not info.has_primary_key()
            assert not info.is_partitioned()
            assert info.schema_id == 1
            assert info.table_id == table.get_table_info().table_id
            assert path.table_name in await admin.list_tables(DATABASE)
            with pytest.raises(fluss.FlussError) as exists:
                await admin.create_table(path, fluss.TableDescriptor(fluss.Schema(SCHEMA)))
            assert error_code(exists) == fluss.ErrorCode.TABLE_ALREADY_EXIST
            await admin.create_table(path, fluss.TableDescriptor(fluss.Schema(SCHEMA)), ignore_if_exists=True)

    run(test)


def test_a_table_without_a_bucket_count_has_one_bucket(either: ServerProcess) -> None:
    async def test() -> None:
        async with connected(either.address) as connection:
            _, table = await make_table(connection, SCHEMA)
            assert table.get_table_info().num_buckets == 1

    run(test)


def test_a_table_that_is_made_again_is_another_table(either: ServerProcess) -> None:
    async def test() -> None:
        async with connected(either.address) as connection:
            admin = connection.get_admin()
            path, table = await make_table(connection, SCHEMA)
            await admin.drop_table(path)
            await admin.create_table(path, fluss.TableDescriptor(fluss.Schema(SCHEMA)))
            again = await admin.get_table_info(path)
            assert again.table_id != table.get_table_info().table_id

    run(test)


@pytest.mark.parametrize("name", ["__hidden", "a.b", "a b", "", "x" * 201, ".."])
def test_names_that_are_not_allowed_are_refused(server: ServerProcess, name: str) -> None:
    async def test() -> None:
        async with connected(server.address) as connection:
            with pytest.raises(fluss.FlussError):
                await connection.get_admin().create_table(
                    fluss.TablePath(DATABASE, name), fluss.TableDescriptor(fluss.Schema(SCHEMA))
                )

    run(test)


def test_partitions_are_created_listed_filtered_and_dropped(either: ServerProcess) -> None:
    async def test() -> None:
        async with connected(either.address) as connection:
            admin = connection.get_admin()
            path, _ = await make_table(connection, DAYS, partition_keys=["day", "region"])
            for day, region in (("2024-01-01", "EU"), ("2024-01-01", "US"), ("2024-01-02", "EU")):
                await admin.create_partition(path, {"day": day, "region": region})
            infos = await admin.list_partition_infos(path)
            assert [info.partition_name for info in infos] == [
                "2024-01-01$EU",
                "2024-01-01$US",
                "2024-01-02$EU",
            ]
            assert len({info.partition_id for info in infos}) == 3
            some = await admin.list_partition_infos(path, {"region": "EU"})
            assert [info.partition_name for info in some] == ["2024-01-01$EU", "2024-01-02$EU"]
            with pytest.raises(fluss.FlussError) as exists:
                await admin.create_partition(path, {"day": "2024-01-01", "region": "EU"})
            assert error_code(exists) == fluss.ErrorCode.PARTITION_ALREADY_EXISTS
            await admin.create_partition(path, {"day": "2024-01-01", "region": "EU"}, ignore_if_exists=True)
            await admin.drop_partition(path, {"day": "2024-01-01", "region": "EU"})
            with pytest.raises(fluss.FlussError) as gone:
                await admin.drop_partition(path, {"day": "2024-01-01", "region": "EU"})
            assert error_code(gone) == fluss.ErrorCode.PARTITION_NOT_EXISTS
            left = await admin.list_partition_infos(path)
            assert [info.partition_name for info in left] == ["2024-01-01$US", "2024-01-02$EU"]

    run(test)


def test_a_table_without_partitions_has_none_to_list(either: ServerProcess) -> None:
    async def test() -> None:
        async with connected(either.address) as connection:
            path, _ = await make_table(connection, SCHEMA)
            with pytest.raises(fluss.FlussError) as refused:
                await connection.get_admin().list_partition_infos(path)
            assert error_code(refused) == fluss.ErrorCode.TABLE_NOT_PARTITIONED_EXCEPTION

    run(test)


def test_there_is_no_lake_snapshot(server: ServerProcess) -> None:
    async def test() -> None:
        async with connected(server.address) as connection:
            path, _ = await make_table(connection, SCHEMA)
            with pytest.raises(fluss.FlussError) as refused:
                await connection.get_admin().get_latest_lake_snapshot(path)
            assert error_code(refused) == fluss.ErrorCode.LAKE_SNAPSHOT_NOT_EXIST

    run(test)
