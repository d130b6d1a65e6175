"""Partitions: create, drop, list."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from strom.coordinator import commands
from strom.coordinator.partitions import list_partitions
from strom.protocol.api_keys import CREATE_PARTITION, DROP_PARTITION, LIST_PARTITION_INFOS, Api
from strom.protocol.message import Message
from strom.protocol.messages import partitions as messages
from strom.rpc.call import Call
from strom.runtime.clock import Clock
from strom.server.calls.catalog.descriptions import path_of, spec_message, values_of
from strom.server.calls.dispatch import CallHandler
from strom.server.tablets.catalog_view import CatalogView

logger = logging.getLogger(__name__)


class PartitionReads:
    """Lists partitions, in every process."""

    def __init__(self, view: CatalogView) -> None:
        self._view = view

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {LIST_PARTITION_INFOS: self.list_partition_infos}

    def list_partition_infos(self, call: Call) -> Message:
        """All partitions of a table, or those with the given values."""
        request: messages.ListPartitionInfosRequest = call.request
        catalog = self._view.fresh()
        path, spec = path_of(request.table_path), request.partial_partition_spec
        found = list_partitions(catalog, path, {} if spec is None else values_of(spec))
        keys = catalog.table(path).description.partition_keys
        infos = [
            messages.WirePartitionInfo(
                partition_id=partition.partition_id, partition_spec=spec_message(keys, partition.values)
            )
            for partition in found
        ]
        return messages.ListPartitionInfosResponse(partitions_info=infos)


class PartitionChanges:
    """Creates and drops partitions, in the coordinator's process."""

    def __init__(self, view: CatalogView, clock: Clock) -> None:
        self._view = view
        self._clock = clock

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {CREATE_PARTITION: self.create_partition, DROP_PARTITION: self.drop_partition}

    async def create_partition(self, call: Call) -> Message:
        """Create the partition of these values."""
        request: messages.CreatePartitionRequest = call.request
        await self._view.perform_everywhere(
            commands.create_partition,
            path_of(request.table_path),
            values_of(request.partition_spec),
            ignore_if_exists=request.ignore_if_exists,
            now_ms=self._clock.now_ms(),
        )
        return messages.CreatePartitionResponse()

    async def drop_partition(self, call: Call) -> Message:
        """Drop the partition of these values with everything in it."""
        request: messages.DropPartitionRequest = call.request
        await self._view.perform_everywhere(
            commands.drop_partition,
            path_of(request.table_path),
            values_of(request.partition_spec),
            ignore_if_not_exists=request.ignore_if_not_exists,
        )
        values = ", ".join(f"{one.key}={one.value}" for one in request.partition_spec.partition_key_values)
        logger.info("dropped partition %s of %s", values, path_of(request.table_path))
        return messages.DropPartitionResponse()
