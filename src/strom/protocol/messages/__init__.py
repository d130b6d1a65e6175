"""Every message, by subject. Field numbers and kinds are the wire: they never change, fields are only added.

``connection`` (versions, login, errors), ``databases``, ``tables``, ``partitions``, ``metadata``, ``log``
(produce, fetch, offsets), ``keys`` (primary-key tables), ``predicate``, ``own`` (calls that only Strom
has), ``own_keys`` (those on primary-key tables).

Names follow the peer where the meaning is the same. A field with a default is optional; the rest is required.
"""
