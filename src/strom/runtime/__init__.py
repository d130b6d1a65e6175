"""The world: the only package that touches clock, randomness, files, objects, sockets, threads and settings.

Each of them is a port (a Protocol) with the real thing beside it; ``strom.testing`` has a fake of each, and
one contract suite (``tests/contracts``) runs on both. Everything above takes what it needs as an argument,
most often as one :class:`strom.runtime.world.World`, so that a simulation can replace the world whole.

Promises: files and objects are synchronous and say what survives a crash; nothing here knows tables,
batches or the protocol.

Read first: ``files.py``, whose docstring is the contract that durability rests on, then ``world.py``.
"""
