"""A real ZooKeeper for small installations and tests: the one among PySpark's jars, alone or as one of several.

Promises: it listens on this machine alone unless told otherwise; its folder belongs to one user and one process at a
time; nothing stays behind when it is killed; it says when it serves.

Does not do: talk to ZooKeeper as a client (that is ``metadata/zookeeper``), watch over it or start it again.

Read first: ``run.py``, then ``ensemble.py``.
"""
