"""Tiering: tables of Strom are brought into the lake, round by round.

    service   asks the coordinator which tables are due, and runs rounds of several tables side by side   ``service.py``
    round     one table, once: plan, files, commit, report, upkeep                                          ``round.py``
    plan      the lake's state it starts from, the parts to read, how far the lake is afterwards             ``plan.py``
    part      offsets [start, end) of one bucket: becomes one file. A task is several parts                 ``parts.py``
    files     what the tasks wrote, and which rows of earlier rounds died                          ``work.py, files.py``
    commit    files, deletes and new offsets, as one snapshot                                           ``committer.py``

Tasks run behind the port ``Jobs`` (``jobs.py``). ``strom.spark.tiering`` runs them as Spark jobs.

Each row arrives exactly once, because
    1. A round plans from the lake itself: the offsets in its newest snapshot, never from what anything remembers.
    2. Files, position deletes and the new offsets are one commit, on the snapshot that was planned from or not at all.
    3. A task that runs twice writes two files of different names; only files whose description came back are committed.
    4. A round that dies leaves unreferenced files and nothing else. The next one plans as if it had never run.

Imports all other rooms of the lake. Read ``round.py`` first.
"""
