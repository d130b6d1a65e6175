"""What people and monitoring see: ``/metrics``, ``/health``, ``/status.json`` and one read-only page.

``http.py`` is a server of the smallest kind: GET and HEAD, one answer per connection, bounds on everything that comes
from outside. It checks the Host header, so that a web page elsewhere cannot read it through a visitor's browser, and
every answer forbids scripts. ``site.py`` says what is where, ``page.py`` draws the page.
"""
