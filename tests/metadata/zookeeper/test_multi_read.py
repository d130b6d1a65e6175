"""Many nodes by one request: as many as asked for, in order, whether they are there or not."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from strom.errors import AuthorizationFailed
from strom.metadata.zookeeper.multi_read import GET_DATA, MultiRead
from strom.metadata.zookeeper.operations import Node
from strom.metadata.zookeeper.options import ZooKeeperOptions
from strom.metadata.zookeeper.session import NODES_A_REQUEST, WINDOW, Deadline, ZooKeeperSession
from strom.runtime.clock import SystemClock
from strom.testing.zookeeper import ZooKeeperEnsemble

GetEach = Callable[[list[str]], list[Node | None]]


@pytest.fixture
def get_each(zookeeper: ZooKeeperEnsemble) -> Iterator[GetEach]:
    clock = SystemClock()
    session = ZooKeeperSession(ZooKeeperOptions(zookeeper.addresses), clock, lambda: None)
    session.start(Deadline(clock, 30))
    yield lambda paths: list(session.get_each(paths, Deadline(clock, 30)))
    session.close()


def test_nodes_come_in_order_with_their_facts_and_none_for_those_that_are_gone(
    get_each: GetEach, raw: KazooClient, root: str
) -> None:
    raw.create(f"{root}/größe", b"wert", makepath=True)
    raw.create(f"{root}/empty", b"")
    raw.create(f"{root}/large", bytes(900_000))
    raw.set(f"{root}/empty", b"")
    names = ["large", "gone", "größe", "empty", "empty/gone"]
    found = get_each([f"{root}/{name}" for name in names])
    assert [None if one is None else len(one.value) for one in found] == [900_000, None, 4, 0, None]
    stat = raw.exists(f"{root}/empty")
    empty = found[3]
    assert empty is not None
    assert empty.facts == (stat.czxid, stat.mzxid, stat.pzxid, 1, 0)


@pytest.mark.parametrize(
    "count", [0, 1, NODES_A_REQUEST, NODES_A_REQUEST + 1, 3 * NODES_A_REQUEST * WINDOW // 2]
)
def test_any_number_of_nodes_is_read(get_each: GetEach, raw: KazooClient, root: str, count: int) -> None:
    raw.create(f"{root}/one", b"x", makepath=True)
    found = get_each([f"{root}/one" if number % 3 else f"{root}/none" for number in range(count)])
    assert [one is not None for one in found] == [number % 3 != 0 for number in range(count)]


def test_a_node_that_may_not_be_read_is_said_so(
    get_each: GetEach, zookeeper: ZooKeeperEnsemble, raw: KazooClient, root: str
) -> None:
    owner = KazooClient(zookeeper.addresses, auth_data=[("digest", "owner:secret")])
    owner.start()
    raw.create(root)
    owner.create(f"{root}/private", b"x", acl=[make_digest_acl("owner", "secret", all=True)])
    with pytest.raises(AuthorizationFailed):
        get_each([f"{root}/private"])
    owner.stop()
    owner.close()


def test_an_answer_of_another_kind_is_not_taken_for_nodes() -> None:
    strange = struct.pack("!iBi", GET_DATA + 1, 0, 0) + struct.pack("!i", 0)
    with pytest.raises(ValueError, match="of kind 5"):
        MultiRead(["/a"]).deserialize(strange, 0)
