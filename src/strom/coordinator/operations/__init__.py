"""What people decide about a cluster: which servers leave or rest, rebalances, elections that give rows up.

    server_tags.py     servers that leave or rest
    rebalances.py      a rebalance from its plan to its end
    losses.py          leaders that were elected though rows may be lost, and what is remembered of it

As all commands they are functions from the catalog to a plan. What the metadata keep is in
``coordinator/operation_rows.py``; which moves even out a cluster is decided in ``replication/rebalance.py``.
"""
