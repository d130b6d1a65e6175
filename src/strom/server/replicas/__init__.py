"""The copies of this server: which it leads and which it follows, and how they become equal.

    replicas.py         all copies of this server; follows the entries of their buckets
    bucket_replica.py   one of them: its role, and how that changes
    leading.py          what a leader does: watermarks, acknowledgements, what is told to followers
    following.py        what a follower does: asks, and takes the answers
    pull_sessions.py    at a leader: the questions that stand before it
    pull_loop.py        at a follower: all questions to one leader
    base_copying.py     at a follower: copying base files; base_holds.py keeps them at the leader
    proposals.py        at a leader: who joins the in-sync set, who leaves it
    wire.py             the messages of ``protocol/messages/replication.py``, as the words of ``strom.replication``

The decisions are in ``strom.replication``; what a copy can do is in ``strom.tablet`` and ``strom.log``. Everything here
belongs to the loop of the server; work on a tablet goes through the bucket's lane.

Read first: bucket_replica.py, then leading.py and following.py.
"""
