"""The shells: processes that wire everything and perform what the layers below decide.

``up.py`` runs a whole server on this machine: one process with every role, or a coordinator that supervises
several tablet servers (``supervisor.py``, ``tablet_process.py``). ``local.py`` runs one inside this process.

    node.py        one process: metadata, tablets, listeners and background work, put together
    calls/         one file per kind of call: from a request to an answer
    background/    what happens without a call: group commit, retention, auto partitions
    web/           metrics, health and the status page

Promises: a call never blocks the loop for longer than a small batch takes; calls on one bucket are performed in the
order they arrived; every call is answered. Deciding is not done here: see ``coordinator`` and ``tablet``.
Read ``node.py`` first.
"""
