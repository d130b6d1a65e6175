"""The kernel that writes a changelog batch as the log holds it: change types and an Arrow message, from the rows."""

from __future__ import annotations

from typing import Any

from strom.kv.gather.message_kernels import DATA, NULLS, VALIDITY, VALIDITY_SIZE, VALUES, write_message
from strom.kv.gather.source_kernels import FORMS, VAR
from strom.kv.kernels.compile import int32, int64, kernel, ro, rw, store_u8, uint8, void


@kernel(
    void(
        ro(int64, 3), ro(int64, 2), ro(int32), ro(int32), ro(uint8), ro(int64, 2), int64, ro(uint8), ro(int64), int64,
        int64, rw(int64, 2), rw(int64, 2),
    )
)  # fmt: skip
def write_batch(
    addresses: Any, spec: Any, source: Any, row: Any, kinds: Any, places: Any, records: int, template: Any,
    marks: Any, size: int, head: int, written: Any, buffers: Any,
) -> None:  # fmt: skip
    """Write change types and message to an address, as ``write_message`` does.

    ``written`` = the addresses of the columns in the message; ``buffers`` = position and size of each in the batch,
    whose body begins at ``head``.
    """
    count = len(source)
    for at in range(count):
        store_u8(records + at, kinds[at])
    message = records + count
    write_message(addresses, spec, source, row, places, message, template, marks, size)
    base = message + len(template)
    number = 0
    for j in range(spec.shape[1]):
        written[j, 0] = base + places[j, VALIDITY] if places[j, NULLS] > 0 else 0
        written[j, 1] = base + places[j, VALUES]
        written[j, 2] = base + places[j, DATA]
        for part in range(3 if spec[FORMS, j] == VAR else 2):
            buffers[number, 0] = head + places[j, VALIDITY + part]
            buffers[number, 1] = places[j, VALIDITY_SIZE + part]
            number += 1
