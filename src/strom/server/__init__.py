"""The shells: processes that wire everything and perform what the layers below decide.

    process/       processes: ``up.py`` runs a whole server on this machine, ``local.py`` one inside this process
    folder/        the data folder
    tablets/       the buckets of this server, and the one way to work on each
    calls/         one file per kind of call: from a request to an answer
    background/    what happens without a call: group commit, retention, auto partitions
    status/        what a server says about itself
    web/           metrics, health and the status page

Promises: a call never blocks the loop for longer than a small batch takes; calls on one bucket are performed in the
order they arrived; every call is answered. Deciding is not done here: see ``coordinator`` and ``tablet``.
Read ``process/serve.py`` first, then ``process/tablet_node.py``.
"""
