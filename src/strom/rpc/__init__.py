"""Calls over connections: a server's listener and a client's caller, on the sockets of ``world.network``.

Promises: answers come in any order, and each reaches its caller; a waiting call never blocks its connection; payloads
are neither copied nor joined; every bound (frames, bytes in flight, calls, time) holds against a malicious peer; and
what was counted in is counted out again, however a connection ends.

Does not: know what a call means (the handler does), choose servers or retry (the client does).

Read first: ``call.py`` and ``limits.py``, then ``listener.py`` with ``connection.py`` for the server's side,
``caller.py`` for the client's. ``http_server.py`` stands apart: pages for browsers and monitoring.
"""
