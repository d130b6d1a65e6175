"""Who belongs to a ZooKeeper, and its configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strom.errors import InvalidSetting

TICK_MS = 500
"""ZooKeeper grants sessions from 2 to 20 ticks: 1 s to 10 s. Its own default of 2,000 would refuse short ones."""

INIT_TICKS = 40
SYNC_TICKS = 10

_PEER = re.compile(r"(\d{1,3})=(\[[0-9a-fA-F:]+\]|[A-Za-z0-9_.-]+):(\d{1,5}):(\d{1,5})")
_ID_MAX = 255


@dataclass(frozen=True, slots=True)
class EnsembleMember:
    """One server of several: where the others reach it."""

    member_id: int
    host: str
    port: int
    """For followers."""
    election_port: int


def members_of(peers: str) -> Mapping[int, EnsembleMember]:
    """The members in ``1=host:2888:3888,2=host:2888:3888,…``; empty for a server that is alone."""
    found: dict[int, EnsembleMember] = {}
    for text in filter(None, (part.strip() for part in peers.split(","))):
        match = _PEER.fullmatch(text)
        numbers = [] if match is None else [int(match[place]) for place in (1, 3, 4)]
        if (
            match is None
            or not 1 <= numbers[0] <= _ID_MAX
            or not all(0 < one < 1 << 16 for one in numbers[1:])
        ):
            raise InvalidSetting(
                f"{text!r} is not a server of a ZooKeeper: write ID=HOST:PORT:ELECTION_PORT with an id from 1 to "
                f"{_ID_MAX}, for example 1=10.0.0.1:2888:3888",
                setting="--peers",
            )
        if numbers[0] in found:
            raise InvalidSetting(f"two servers of the ZooKeeper have the id {numbers[0]}", setting="--peers")
        found[numbers[0]] = EnsembleMember(numbers[0], match[2], numbers[1], numbers[2])
    return found


def check_member(own_id: int | None, members: Mapping[int, EnsembleMember]) -> None:
    """Refuse an id without servers, servers without an id, and an id that is not among them."""
    if (own_id is None) != (not members):
        raise InvalidSetting(
            "a server of several needs both --id and --peers; one that is alone needs neither",
            setting="--peers",
        )
    if own_id is not None and own_id not in members:
        raise InvalidSetting(f"--id {own_id} is not among --peers", setting="--id")


def configuration(
    folder: str, host: str, port: int, members: Sequence[EnsembleMember], *, tick_ms: int = TICK_MS
) -> str:
    """The contents of ``zoo.cfg``."""
    lines = [
        f"dataDir={folder}",
        f"clientPort={port}",
        f"clientPortAddress={host}",
        f"tickTime={tick_ms}",
        f"initLimit={INIT_TICKS}",
        f"syncLimit={SYNC_TICKS}",
        "maxClientCnxns=0",
        "admin.enableServer=false",
        "4lw.commands.whitelist=srvr",
        # Without these it keeps every log and snapshot it ever wrote.
        "autopurge.snapRetainCount=3",
        "autopurge.purgeInterval=1",
        *(f"server.{one.member_id}={one.host}:{one.port}:{one.election_port}" for one in members),
    ]
    return "\n".join(lines) + "\n"


LOGGING = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss}{UTC} %p zookeeper: %m%n
"""
"""The contents of ``log4j2.properties``: as the lines of our own servers look."""
