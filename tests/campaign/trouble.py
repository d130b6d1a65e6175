"""What happens to the cluster: each kind of event harms something, and mends it some time later."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import strom
from campaign.false_clock import FalseClock
from campaign.key_actors import KEYS
from campaign.log_actors import LOG
from campaign.pipeline import Program
from campaign.small_disk import SmallDisk
from strom.errors import StromError
from strom.testing.cluster_process import ClusterProcess, RoleProcess
from strom.testing.process import ServerFailed
from strom.testing.switchboard import CLIENT, Switchboard
from strom.testing.zookeeper import ZooKeeperFailed, ZooKeeperProcess

SHORT_S = (0.05, 2.5)
LONG_S = (2.5, 9.0)
"""Longer than servers wait for ZooKeeper before they give up serving (6 s)."""

Harm = Callable[["Trouble"], AbstractContextManager[str]]


class Busy(RuntimeError):
    """What the event needs is already in trouble."""


class Trouble:
    """A cluster and what is wrong with it now."""

    def __init__(self, cluster: ClusterProcess, board: Switchboard, db: strom.Database, seed: int) -> None:
        self.disk: SmallDisk | None = None
        self.clock: FalseClock | None = None
        self.programs: list[Program] = []
        self.cluster = cluster
        self.board = board
        self.db = db
        self.chance = random.Random(seed)
        self.failures: list[str] = []
        """Servers that did not start again."""
        self._taken: set[str] = set()
        self._starting: list[threading.Thread] = []

    # --- who ---------------------------------------------------------------------------------------------------

    def take(self, name: str) -> None:
        """Nobody else harms it until it is given back."""
        if name in self._taken:
            raise Busy(name)
        self._taken.add(name)

    def give_back(self, name: str) -> None:
        """Others may harm it again."""
        self._taken.discard(name)

    def tablet(self) -> RoleProcess:
        """A tablet server that nothing is wrong with: often one that leads a bucket that is written to."""
        found = self._leader() if self.chance.random() < 0.6 else None
        server = found or self.cluster.tablets[self.chance.choice(list(self.cluster.tablets))]
        self.take(server.folder.name)
        return server

    def coordinator(self) -> RoleProcess:
        """A coordinator that nothing is wrong with."""
        server = self.chance.choice(self.cluster.coordinators)
        self.take(server.folder.name)
        return server

    def zookeeper(self) -> ZooKeeperProcess:
        """A server of ZooKeeper, the only one that something is wrong with."""
        self.take("zookeeper")
        return self.chance.choice(self.cluster.zookeeper.servers)

    def _leader(self) -> RoleProcess | None:
        table, bucket = self.chance.choice([LOG, KEYS]), self.chance.random()
        try:
            found = self.db.bucket_copies(table)
        except StromError:
            return None
        leader = found[int(bucket * len(found))].leader
        return None if leader is None else self.cluster.tablets[leader]

    @property
    def everybody(self) -> list[str]:
        """The names of all processes."""
        servers = [one.folder.name for one in self.cluster.roles]
        return [*servers, *(one.folder.name for one in self.cluster.zookeeper.servers), CLIENT]

    # --- again -------------------------------------------------------------------------------------------------

    def start_again(self, server: RoleProcess | ZooKeeperProcess, name: str) -> None:
        """Start it, and give it back once it is ready; nobody waits for it here."""
        server.begin()

        def wait() -> None:
            try:
                server.wait_ready()
            except (ServerFailed, ZooKeeperFailed) as error:
                self.failures.append(f"{name} did not start again: {error}")
            self.give_back(name)

        thread = threading.Thread(target=wait, daemon=True)
        self._starting.append(thread)
        thread.start()

    def wait_started(self) -> None:
        """Wait until all that was started is ready."""
        for thread in self._starting:
            thread.join()
        self._starting.clear()

    def ended_by_themselves(self) -> list[str]:
        """Servers that nobody harms, and that are gone nevertheless."""
        return [
            f"{one.folder.name} ended by itself:\n{one.output()[-3000:]}"
            for one in self.cluster.roles
            if one.folder.name not in self._taken and not one.running
        ]


# --- processes -------------------------------------------------------------------------------------------------


@contextmanager
def kill_tablet(trouble: Trouble) -> Iterator[str]:
    server = trouble.tablet()
    server.kill()
    yield server.folder.name
    trouble.start_again(server, server.folder.name)


@contextmanager
def kill_all_tablets(trouble: Trouble) -> Iterator[str]:
    servers = list(trouble.cluster.tablets.values())
    names = [one.folder.name for one in servers]
    if trouble._taken & set(names):
        raise Busy("a tablet server")
    for one in servers:
        trouble.take(one.folder.name)
        one.kill()
    yield "all"
    for one in servers:
        trouble.start_again(one, one.folder.name)


@contextmanager
def stop_tablet(trouble: Trouble) -> Iterator[str]:
    server = trouble.tablet()
    code = server.stop()
    if code != 0:
        trouble.failures.append(f"{server.folder.name} stopped with code {code}")
    yield server.folder.name
    trouble.start_again(server, server.folder.name)


@contextmanager
def freeze_tablet(trouble: Trouble) -> Iterator[str]:
    server = trouble.tablet()
    server.pause()
    yield server.folder.name
    server.resume()
    trouble.give_back(server.folder.name)


@contextmanager
def kill_coordinator(trouble: Trouble) -> Iterator[str]:
    server = trouble.coordinator()
    server.kill()
    yield server.folder.name
    trouble.start_again(server, server.folder.name)


@contextmanager
def freeze_coordinator(trouble: Trouble) -> Iterator[str]:
    server = trouble.coordinator()
    server.pause()
    yield server.folder.name
    server.resume()
    trouble.give_back(server.folder.name)


@contextmanager
def kill_zookeeper(trouble: Trouble) -> Iterator[str]:
    server = trouble.zookeeper()
    mode = server.mode() or "not serving"
    server.kill()
    yield f"{server.folder.name}, {mode}"
    trouble.start_again(server, "zookeeper")


@contextmanager
def freeze_zookeeper(trouble: Trouble) -> Iterator[str]:
    server = trouble.zookeeper()
    server.pause()
    yield server.folder.name
    server.resume()
    trouble.give_back("zookeeper")


# --- the network -----------------------------------------------------------------------------------------------


@contextmanager
def _network(trouble: Trouble, links: Sequence[tuple[str, str]], told: str) -> Iterator[str]:
    """Hold links; heal them all. Whether the connections survive it is a matter of chance."""
    trouble.take("network")
    reset = trouble.chance.random() < 0.5
    for source, target in links:
        trouble.board.hold(source, target)
    yield told + (", reset" if reset else "")
    if reset:
        for source, target in links:
            trouble.board.cut(source, target)
    trouble.board.heal()
    trouble.give_back("network")


def _others(trouble: Trouble, name: str) -> list[str]:
    return [one for one in trouble.everybody if one != name]


def _a_tablet(trouble: Trouble) -> str:
    """The name of one; it may be harmed otherwise, too."""
    found = trouble._leader() if trouble.chance.random() < 0.6 else None
    return (
        found or trouble.cluster.tablets[trouble.chance.choice(list(trouble.cluster.tablets))]
    ).folder.name


def cut_off_tablet(trouble: Trouble) -> AbstractContextManager[str]:
    name = _a_tablet(trouble)
    links = [way for one in _others(trouble, name) for way in ((name, one), (one, name))]
    return _network(trouble, links, name)


def deafen_tablet(trouble: Trouble) -> AbstractContextManager[str]:
    name = _a_tablet(trouble)
    return _network(trouble, [(one, name) for one in _others(trouble, name)], name)


def silence_tablet(trouble: Trouble) -> AbstractContextManager[str]:
    name = _a_tablet(trouble)
    return _network(trouble, [(name, one) for one in _others(trouble, name)], name)


def cut_tablet_from_zookeeper(trouble: Trouble) -> AbstractContextManager[str]:
    name = _a_tablet(trouble)
    servers = [one.folder.name for one in trouble.cluster.zookeeper.servers]
    return _network(trouble, [way for one in servers for way in ((name, one), (one, name))], name)


def cut_tablet_from_peers(trouble: Trouble) -> AbstractContextManager[str]:
    name = _a_tablet(trouble)
    peers = [one.folder.name for one in trouble.cluster.tablets.values() if one.folder.name != name]
    return _network(trouble, [way for one in peers for way in ((name, one), (one, name))], name)


def cut_tablet_from_clients(trouble: Trouble) -> AbstractContextManager[str]:
    name = _a_tablet(trouble)
    return _network(trouble, [(name, CLIENT), (CLIENT, name)], name)


def cut_one_link(trouble: Trouble) -> AbstractContextManager[str]:
    name = _a_tablet(trouble)
    peer = trouble.chance.choice(_others(trouble, name))
    way = (name, peer) if trouble.chance.random() < 0.5 else (peer, name)
    return _network(trouble, [way], f"{way[0]} to {way[1]}")


def cut_coordinator(trouble: Trouble) -> AbstractContextManager[str]:
    name = trouble.chance.choice(trouble.cluster.coordinators).folder.name
    links = [way for one in _others(trouble, name) for way in ((name, one), (one, name))]
    return _network(trouble, links, name)


def cut_coordinator_from_zookeeper(trouble: Trouble) -> AbstractContextManager[str]:
    name = trouble.chance.choice(trouble.cluster.coordinators).folder.name
    servers = [one.folder.name for one in trouble.cluster.zookeeper.servers]
    return _network(trouble, [way for one in servers for way in ((name, one), (one, name))], name)


@contextmanager
def slow_tablet(trouble: Trouble) -> Iterator[str]:
    name = _a_tablet(trouble)
    trouble.take("network")
    seconds = trouble.chance.choice([0.01, 0.05, 0.3])
    for one in _others(trouble, name):
        trouble.board.slow(name, one, seconds)
        trouble.board.slow(one, name, seconds)
    yield f"{name}, {seconds} s each way"
    trouble.board.heal()
    trouble.give_back("network")


# --- what people do --------------------------------------------------------------------------------------------


@contextmanager
def move_leader(trouble: Trouble) -> Iterator[str]:
    """A bucket is given to a leader that may be in trouble itself; what is refused is no failure."""
    table = trouble.chance.choice([LOG, KEYS])
    bucket, server = trouble.chance.random(), trouble.chance.choice(list(trouble.cluster.tablets))
    try:
        found = trouble.db.bucket_copies(table)
        number = int(bucket * len(found))
        trouble.db.move_bucket(table, number, leader=server)
    except StromError as error:
        yield f"refused, {type(error).__name__}"
    else:
        yield f"{table} {number} to {server}"


# --- disks, clocks, programs behind it -------------------------------------------------------------------------


@contextmanager
def fill_disk(trouble: Trouble) -> Iterator[str]:
    """Less room than the server wants to have left; or none at all, so that writes fail in their middle."""
    if trouble.disk is None:
        raise Busy("no disk of its own")
    trouble.take("disk")
    leave = trouble.chance.choice([4 << 20, 64 << 10, 0])
    trouble.disk.fill(leave)
    yield f"{trouble.disk.folder.name}, {leave} bytes left"
    trouble.disk.free()
    trouble.give_back("disk")


@contextmanager
def jump_clock(trouble: Trouble) -> Iterator[str]:
    """The wall clock of one server is wrong, and then right again."""
    if trouble.clock is None:
        raise Busy("no clock of its own")
    trouble.take("clock")
    seconds = trouble.chance.choice([-86_400, -3600, -5, 5, 3600, 86_400, 400 * 86_400])
    trouble.clock.jump(seconds)
    yield f"{seconds:+d} s"
    trouble.clock.jump(0)
    trouble.give_back("clock")


@contextmanager
def kill_program(trouble: Trouble) -> Iterator[str]:
    """Spark and everything it started."""
    if not trouble.programs:
        raise Busy("no programs")
    program = trouble.chance.choice(trouble.programs)
    trouble.take(program.name)
    program.kill_once()
    yield program.name
    program.look()
    trouble.give_back(program.name)


EVENTS: dict[str, tuple[int, Harm]] = {
    "kill tablet": (8, kill_tablet),
    "kill all tablets": (1, kill_all_tablets),
    "stop tablet": (4, stop_tablet),
    "freeze tablet": (6, freeze_tablet),
    "kill coordinator": (3, kill_coordinator),
    "freeze coordinator": (2, freeze_coordinator),
    "kill zookeeper": (3, kill_zookeeper),
    "freeze zookeeper": (2, freeze_zookeeper),
    "cut off tablet": (4, cut_off_tablet),
    "deafen tablet": (2, deafen_tablet),
    "silence tablet": (2, silence_tablet),
    "cut tablet from zookeeper": (3, cut_tablet_from_zookeeper),
    "cut tablet from peers": (3, cut_tablet_from_peers),
    "cut tablet from clients": (2, cut_tablet_from_clients),
    "cut one link": (3, cut_one_link),
    "cut off coordinator": (2, cut_coordinator),
    "cut coordinator from zookeeper": (2, cut_coordinator_from_zookeeper),
    "slow tablet": (3, slow_tablet),
    "move leader": (5, move_leader),
    "fill disk": (4, fill_disk),
    "jump clock": (4, jump_clock),
    "kill Spark": (2, kill_program),
}
"""Each kind of event: how often it comes in relation to others, and what it does."""
