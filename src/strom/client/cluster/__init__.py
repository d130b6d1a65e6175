"""Who is where, whom to ask, and asking again when that helps.

Read ``cluster.py`` first, then ``metadata.py`` (facts, no calls) and ``retry.py``. ``connections.py`` serves the event
loop; ``direct_calls.py`` serves a thread that blocks. Imports no other room of the client.
"""
