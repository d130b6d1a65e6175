"""Where the servers are, which one to ask, and retries.

Read ``cluster.py`` first, then ``metadata.py`` (facts, no calls) and ``retry.py``. ``connections.py`` serves the event
loop; ``direct_calls.py`` serves threads that block. Imports no other room of the client.
"""
