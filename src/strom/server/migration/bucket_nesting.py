"""The folder of a bucket becomes that of one of its copies, and back.

    one machine    buckets/<table>/<partition>/<bucket>/…
    cluster        buckets/<table>/<partition>/<bucket>/p<placement>/…

Both ways go over a folder beside it, so that a crash after any rename leaves one that the next call continues from.
"""

from __future__ import annotations

from strom.model.bucket import BucketId
from strom.runtime import trees
from strom.runtime.files import Files
from strom.server.folder.folder import bucket_path

ASIDE_SUFFIX = ".moving"


def copy_path(path: str, bucket: BucketId, placement: int) -> str:
    """The folder of a copy."""
    return f"{bucket_path(path, bucket)}/p{placement}"


def nest(files: Files, path: str, bucket: BucketId, placement: int) -> bool:
    """Make the folder of a bucket that of a copy; false if there is none, or it is one already."""
    folder, nested = bucket_path(path, bucket), copy_path(path, bucket, placement)
    aside = folder + ASIDE_SUFFIX
    if not files.exists(aside):
        if not files.exists(folder) or files.exists(nested):
            return False
        files.rename(folder, aside)
    files.make_folder(folder)
    trees.move(aside, nested)
    return True


def unnest(files: Files, path: str, bucket: BucketId, placement: int) -> bool:
    """Make the folder of a copy that of the bucket; false if there is none. Other copies that were left there go."""
    folder, nested = bucket_path(path, bucket), copy_path(path, bucket, placement)
    aside = folder + ASIDE_SUFFIX
    if not files.exists(aside):
        if not files.exists(nested):
            return False
        trees.move(nested, aside)
    files.remove_tree(folder)
    files.rename(aside, folder)
    files.sync_folder(folder.rpartition("/")[0])
    return True
