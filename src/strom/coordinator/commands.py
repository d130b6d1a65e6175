"""Every command that ``Coordinator.perform`` takes. Each is a function from the catalog to a plan."""

from __future__ import annotations

from strom.coordinator.alter import Alteration, NewColumn, alter_table
from strom.coordinator.databases import bootstrap, create_database, drop_database
from strom.coordinator.lake import allocate_rounds, store_lake
from strom.coordinator.new_copies import sweep
from strom.coordinator.operations.losses import elect_uncleanly, forget_losses, recover
from strom.coordinator.operations.rebalances import (
    begin_moves,
    cancel_rebalance,
    extend_rebalance,
    finish_rebalance,
    start_rebalance,
    take_back,
)
from strom.coordinator.operations.server_tags import add_tags, remove_tags
from strom.coordinator.partitions import AutoPartitioned, auto_partition, create_partition, drop_partition
from strom.coordinator.replicas import (
    advance_moves,
    change_in_sync,
    change_in_sync_sets,
    drop_dead_members,
    elect_leaders,
    move_leader,
    move_leaders_away,
    prefer_leaders,
    reassign,
    replace_cut_off_leaders,
)
from strom.coordinator.servers import reassign_leaders, register_coordinator, register_server
from strom.coordinator.sinks import decide, drop_sink, forget_sinks, raise_floor, skip_lost
from strom.coordinator.tables import create_table, drop_table
from strom.coordinator.term import retire, take_over
from strom.coordinator.writers import allocate_numbers, allocate_writer_ids

__all__ = [
    "Alteration",
    "AutoPartitioned",
    "NewColumn",
    "add_tags",
    "advance_moves",
    "allocate_numbers",
    "allocate_rounds",
    "allocate_writer_ids",
    "alter_table",
    "auto_partition",
    "begin_moves",
    "bootstrap",
    "cancel_rebalance",
    "change_in_sync",
    "change_in_sync_sets",
    "create_database",
    "create_partition",
    "create_table",
    "decide",
    "drop_database",
    "drop_dead_members",
    "drop_partition",
    "drop_sink",
    "drop_table",
    "elect_leaders",
    "elect_uncleanly",
    "extend_rebalance",
    "finish_rebalance",
    "forget_losses",
    "forget_sinks",
    "move_leader",
    "move_leaders_away",
    "prefer_leaders",
    "raise_floor",
    "reassign",
    "reassign_leaders",
    "recover",
    "register_coordinator",
    "register_server",
    "remove_tags",
    "replace_cut_off_leaders",
    "retire",
    "skip_lost",
    "start_rebalance",
    "store_lake",
    "sweep",
    "take_back",
    "take_over",
]
