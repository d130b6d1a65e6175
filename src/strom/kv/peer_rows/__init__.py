"""Rows in the peer's compacted form, both ways: decoded from PutKv, encoded for Lookup.

Read ``row_form.py`` first, then ``row_decoder.py`` and ``row_encoder.py``.
"""
