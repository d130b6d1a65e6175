"""The wire, as bytes and names: frames, messages, API keys, error numbers. No I/O, no waiting.

Promises: what is decoded was inside its bounds (lengths, nesting, number of fields); payloads (``bytes`` fields)
are views of the frame they came in, never copies; what is encoded can be read by every Fluss client.

Does not: open connections (``rpc``), look inside record batches (``record``), decide anything.

Read first: ``frame.py`` for what is on the wire, ``codec.py`` for how a message is declared, ``messages/`` for
the messages, ``api_keys.py`` for which call carries which. The tables are in docs/formats/protocol.md.
"""
