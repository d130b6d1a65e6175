"""The simulated world: a fake of everything in ``strom.runtime``, shipped and tested like the product.

Each fake passes the contract suite of the thing it replaces (``tests/contracts``) and adds what a test needs:
a disk that forgets what was not synced and replays every point of its history, a clock that is moved by hand,
an event loop on virtual time, a network that delays, stalls and cuts. Equal seeds give equal runs.

Nothing in the product imports this package.

Read first: ``disk.py`` for storage, ``loop.py`` and ``network.py`` for everything that talks.
"""
