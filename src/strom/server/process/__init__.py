"""A server as processes: started, supervised, listening, stopped.

Read ``serve.py`` first, then ``tablet_node.py`` and ``coordinator_node.py`` (the two roles) and ``supervisor.py``.
"""
