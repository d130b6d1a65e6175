"""How the servers of a cluster call each other.

Read ``inner_link.py``: the listener that takes inner calls, and the link that makes them. ``server_links.py`` has the
links to all servers, ``secret_file.py`` reads the secret they share.
"""
