"""The end of a bucket's remote log (C10): a last manifest, after which nobody can name anything; then its objects go.

The last manifest stays: it tells whoever restores the rest, or was away, that the table was dropped.
"""

from __future__ import annotations

from collections.abc import Callable

from strom.errors import StaleEpoch
from strom.remote.chain_leader import ChainLeader
from strom.remote.remote_chain import RemoteChain
from strom.remote.remote_manifest import DROPPED_EPOCH

KEYS_AT_ONCE = 1000


async def drop_chain(chain: RemoteChain, new_id: Callable[[], str]) -> bool:
    """Drop it; False: something came between, once more. Dropping twice removes what landed late."""
    head = await chain.head()
    if head.number and not head.manifest.dropped:
        leader = ChainLeader(chain, epoch=DROPPED_EPOCH - 1, new_id=new_id, about=head.manifest.about)
        try:
            if not await leader.drop():
                return False
        except StaleEpoch:
            return False  # somebody else dropped it just now
        head = await chain.head(head)
    last = chain.names.manifest(head.number)
    keys = [one.key for one in await chain.objects.list(f"{chain.names.folder}/") if one.key != last]
    for start in range(0, len(keys), KEYS_AT_ONCE):
        await chain.objects.delete(keys[start : start + KEYS_AT_ONCE])
    return True
