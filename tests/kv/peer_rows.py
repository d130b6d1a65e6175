"""All batches of changes that pyfluss 1.0.0 sent."""

from __future__ import annotations

from kv.peer_keyed_rows import KEYED
from kv.peer_nested_rows import NESTED
from kv.peer_scalar_rows import SCALARS

CASES = [*SCALARS, *NESTED, *KEYED]
