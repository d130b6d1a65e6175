"""A server as processes: started, supervised, listening, stopped.

Read ``serve.py`` first, then ``tablet_node.py`` and ``coordinator_node.py`` (the two roles). With several processes:
``supervisor.py`` keeps the tablet servers running, the room ``links`` is how the servers call each other, ``leash.py``
ends a child whose parent is gone.

In a cluster: ``roles.py`` starts ``cluster_coordinator.py`` or ``cluster_tablet.py``, which share
``cluster_parts.py``; ``local_cluster.py`` runs all of them on one machine.
"""
