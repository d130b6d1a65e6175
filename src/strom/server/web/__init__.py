"""What people and monitoring see: ``/metrics``, ``/health``, ``/status.json`` and one read-only page.

``site.py`` says what is where, ``page.py`` draws the page; ``rpc/http_server.py`` serves them.
"""
