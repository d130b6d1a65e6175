"""What the operator allows, and the defaults of a table."""

from __future__ import annotations

from dataclasses import dataclass

from strom.model.properties import Durability


@dataclass(frozen=True, slots=True)
class DecisionLimits:
    """Settings that decisions depend on; the comments name the setting."""

    bucket_num_max: int = 4096  # max.bucket.num: per table, or per partition of a partitioned table
    partition_num_max: int = 1000  # max.partition.num: per table
    bucket_count_default: int = 1  # default.bucket.number
    replication_factor_default: int = 1  # default.replication.factor
    durability_default: Durability = "group"  # durability
    replicated: bool = False  # metadata.store: every bucket has an entry, its copies are on several servers
