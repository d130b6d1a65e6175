"""The server: processes that wire everything together and carry out what the layers below decide.

    process/       processes: ``up.py`` runs a whole server on this machine, ``local.py`` one inside this process,
                   ``roles.py`` one server of a cluster
    folder/        the data folder
    tablets/       the buckets of this server, and the one way to work on each
    calls/         one file per kind of call: from a request to an answer
    background/    work that no call triggers: group commit, retention, auto partitions
    status/        buckets, tables and rates, for people and monitoring
    web/           metrics, health and the status page

Of a cluster alone:

    links/         how its servers call each other
    membership/    who belongs to it, who is there, and what its active coordinator does about it
    replicas/      the copies of this server, and how they become equal
    migration/     the metadata of one machine move to ZooKeeper, and back
    zookeeper/     a ZooKeeper for small installations and tests

Promises: a call never blocks the loop for longer than a small batch takes; calls on one bucket are performed in the
order they arrived; every call is answered. Decisions are made elsewhere: see ``coordinator`` and ``tablet``.
Read ``process/serve.py`` first, then ``process/tablet_node.py``.
"""
