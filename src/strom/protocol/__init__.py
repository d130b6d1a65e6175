"""The wire, as bytes and names: frames, messages, API keys, error numbers. No I/O, no waiting.

Promises: decoding checks bounds (lengths, nesting, number of fields); payloads (``bytes`` fields) are views of their
frame, never copies; every Fluss client can read what is encoded.

Does not: open connections (``rpc``), look inside record batches (``record``), decide anything.

Read first: ``frame.py`` for what is on the wire, ``codec.py`` for how a message is declared, ``messages/`` for
the messages, ``api_keys.py`` for which call carries which. The tables are in docs/formats/protocol.md.
"""
