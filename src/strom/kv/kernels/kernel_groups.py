"""Which group each kernel belongs to. Modules not listed here are needed by every primary-key table."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Collection
from functools import cache

import strom.kv
from strom.kv.kernels.kernel_code import DECLARED, Declared
from strom.kv.kernels.kernel_needs import AGGREGATES, DECIMALS, LISTS, PEER_ROWS, ROWS, VERSIONS

GROUP_OF = {
    "index.row_list_kernels": LISTS,
    "engines.versioned": VERSIONS,
    "engines.arithmetic": AGGREGATES,
    "engines.listing": AGGREGATES,
    "engines.selection": AGGREGATES,
    "engines.wide_kernels": DECIMALS,
    "peer_rows.kv_batch": PEER_ROWS,
    "peer_rows.row_decoder_kernels": PEER_ROWS,
    "peer_rows.row_encoder_kernels": PEER_ROWS,
}
"""By the module's name within the package."""
_PACKAGE = "strom.kv."


@cache
def import_all() -> None:
    """Import every module of the package, which declares all kernels."""
    for module in pkgutil.walk_packages(strom.kv.__path__, _PACKAGE):
        importlib.import_module(module.name)


def kernels_of(needs: Collection[str]) -> list[Declared]:
    """The kernels of these groups."""
    import_all()
    return [one for one in list(DECLARED.values()) if group_of(one) in needs]


def group_of(kernel: Declared) -> str | None:
    """The group of a kernel; None when it is not of this package."""
    module = kernel.name.partition(":")[0]
    return GROUP_OF.get(module.removeprefix(_PACKAGE), ROWS) if module.startswith(_PACKAGE) else None
