"""The histories of remote storage by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from remote.specification.history import Make
from remote.specification.key_world import KEY_MUTANTS, KeyWorld
from remote.specification.mutants import MUTANTS, Mutant
from remote.specification.restore_world import RESTORE_MUTANTS, RestoreWorld
from remote.specification.server_chain import SERVER_MUTANTS, ServerChain
from remote.specification.world import World


class Model(NamedTuple):
    """A kind of history, and what can be broken in it."""

    make: Make
    mutants: Mapping[str, Mutant]


MODELS = {
    "keys": Model(KeyWorld, KEY_MUTANTS),
    "chain": Model(World, MUTANTS),
    "server": Model(ServerChain, SERVER_MUTANTS),
    "restore": Model(RestoreWorld, RESTORE_MUTANTS),
}
