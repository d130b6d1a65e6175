"""The calls about the catalog that every server of a cluster answers, from what it knows of the metadata."""

from __future__ import annotations

from strom.server.calls.catalog.databases import DatabaseReads
from strom.server.calls.catalog.metadata import MetadataCalls
from strom.server.calls.catalog.partitions import PartitionReads
from strom.server.calls.catalog.tables import TableReads
from strom.server.calls.dispatch import CallGroup
from strom.server.tablets.catalog_view import CatalogView


def catalog_reads(view: CatalogView) -> tuple[CallGroup, ...]:
    """Databases, tables, partitions, and where everything is."""
    return (DatabaseReads(view), TableReads(view), PartitionReads(view), MetadataCalls(view))
