"""What people and monitoring see: ``/metrics``, ``/health``, ``/status.json`` and one read-only page.

``site.py`` has the routes and their facts, ``page.py`` draws the page, ``rpc/http_server.py`` serves them.
"""
