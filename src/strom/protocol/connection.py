"""Bytes in, frames out: one direction of a connection, without any I/O.

The owner gets a buffer from ``room()``, lets the system write into it, reports how much arrived (``filled``), and takes
frames until there are none. A small frame waits in an area shared by all frames and is copied out once. A large frame
gets its own memory: its bytes arrive where they stay and are not copied later. That memory is not allocated before the
owner agrees (``wanted`` says how much, ``admit`` allocates it, all or the part that may arrive so far): a length from
outside is a limit first and an allocation last.

A frame is what follows its length field. Its memory is writable and belongs to the caller that takes it.
"""

from __future__ import annotations

import pyarrow as pa

from strom.errors import InvalidRequest, RecordTooLarge
from strom.protocol.frame import LENGTH, REQUEST_HEAD
from strom.runtime.files import Bytes

AREA_BYTES = 32 * 1024
"""Room for small frames."""
SMALL_BYTES_MAX = AREA_BYTES // 2
"""A frame up to this size always arrives in the area: half of it, whatever precedes it."""
PEEK_BYTES = 256
"""After a large frame another one is likely: offer only a little room, so that little must be moved."""


class FrameReader:
    """Cuts a stream of bytes into frames."""

    def __init__(
        self, *, frame_bytes_max: int, head_bytes: int = REQUEST_HEAD.size, area_bytes: int = AREA_BYTES
    ) -> None:
        self.frame_bytes_max = frame_bytes_max
        """The longest frame allowed; may be changed between frames (larger after login)."""
        self._head_bytes = head_bytes
        self._area_bytes = area_bytes
        self._area = bytearray()  # allocated with the first bytes: many connections never send any
        self._view = memoryview(self._area)
        self._start = 0  # of what has not been taken yet
        self._end = 0
        self._large: memoryview | None = None  # the large frame that is arriving, as far as admitted
        self._large_filled = 0
        self._large_size = 0
        self._peek = False
        self.wanted = 0
        """The size of a large frame that has begun and needs memory; 0 if there is none."""
        self.more = False
        """Whether bytes remain after the frame taken last."""
        self.bytes = 0
        """Bytes received in total."""
        self.frames = 0
        """Frames taken in total."""

    @property
    def amid_frame(self) -> bool:
        """Whether a frame has begun and not ended."""
        return self._large is not None or self._end > self._start

    @property
    def frame_bytes(self) -> int:
        """The size of the large frame that is arriving, or 0."""
        return self.wanted or self._large_size

    @property
    def frame_arrived(self) -> int:
        """Bytes of the large frame that have arrived."""
        if self._large is not None:
            return self._large_filled
        return self._end - self._start - LENGTH.size if self.wanted else 0

    @property
    def begun(self) -> memoryview:
        """What has arrived of the large frame that is arriving."""
        assert self._large is not None
        return self._large[: self._large_filled]

    def room(self) -> memoryview:
        """The buffer for the next bytes. Not empty once ``next`` returned None and ``wanted`` is 0."""
        if self._large is not None:
            return self._large[self._large_filled :]
        if self._start == self._end:
            self._start = self._end = 0
            if not self._area:
                self.widen(self._area_bytes)
            return self._view[:PEEK_BYTES] if self._peek else self._view
        if self._start > self._area_bytes // 2 - LENGTH.size:
            # The waiting bytes may begin a small frame that would not fit behind them.
            rest = self._area[self._start : self._end]
            self._start, self._end = 0, len(rest)
            self._area[: self._end] = rest
        return self._view[self._end :]

    def filled(self, count: int) -> bool:
        """``count`` bytes arrived in the last buffer. Returns whether there may be a frame."""
        self.bytes += count
        if self._large is not None:
            self._large_filled += count
            assert self._large_filled <= len(self._large)
            return self._large_filled == len(self._large)
        self._end += count
        assert self._end <= self._area_bytes
        return True

    def widen(self, area_bytes: int = AREA_BYTES) -> None:
        """Resize the area for small frames; what has arrived stays."""
        if len(self._area) == area_bytes:
            return
        rest = self._area[self._start : self._end]
        self._area_bytes = area_bytes
        self._area = bytearray(area_bytes)
        self._area[: len(rest)] = rest
        self._view = memoryview(self._area)
        self._start, self._end = 0, len(rest)

    def close(self) -> None:
        """Nothing more will arrive: release the memory."""
        self._area, self._view, self._large = bytearray(), memoryview(b""), None
        self._start = self._end = self._large_size = self.wanted = 0

    def next(self) -> Bytes | None:
        """The next complete frame, or None. Raises if the stream cannot continue.

        RecordTooLarge carries the frame's head in ``facts["head"]``, so that the sender can be answered.
        """
        if self._large is not None:
            return self._next_large()
        available = self._end - self._start
        if available < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(self._area, self._start)
        if not self._head_bytes <= length <= self.frame_bytes_max:
            self._refuse(length, available)
            return None
        start = self._start + LENGTH.size
        if length <= available - LENGTH.size:
            self._start = stop = start + length
            self._peek = False
            self.more = stop < self._end
            self.frames += 1
            return self._area[start:stop]
        if length > self._area_bytes // 2:
            self.wanted = length
        return None

    def admit(self, allowed: int | None = None) -> None:
        """Allocate memory for the large frame that has begun: for all of it, or for its first bytes."""
        assert self.wanted > 0
        size = self._large_size = self.wanted
        begun = self._view[self._start + LENGTH.size : self._end] if self._large is None else self._large
        # Not a bytearray: that would be zeroed first, and so touched before its bytes arrive. Arrow's memory
        # goes back to its own pool: the next frame finds pages that are there, which is half the price of a scan.
        room = size if allowed is None else min(size, max(allowed, len(begun)))
        self._large = memoryview(pa.allocate_buffer(room)).cast("B")
        self._large_filled = len(begun)
        self._large[: self._large_filled] = begun
        self._start = self._end = 0
        self.wanted = 0

    def _next_large(self) -> Bytes | None:
        assert self._large is not None
        if self._large_filled < len(self._large):
            return None
        if self._large_filled < self._large_size:
            self.wanted = self._large_size
            return None
        frame, self._large, self._large_filled, self._peek = self._large, None, 0, True
        self._large_size = 0
        self.more = False
        self.frames += 1
        return frame

    def _refuse(self, length: int, available: int) -> None:
        """Raise why a frame of this length is refused, or return to wait for its head."""
        if length < self._head_bytes:
            raise InvalidRequest(f"a frame has a length of {length}", length=length)
        if available < LENGTH.size + self._head_bytes:
            return
        start = self._start + LENGTH.size
        raise RecordTooLarge(
            f"a frame of {length} bytes is larger than {self.frame_bytes_max}",
            length=length,
            limit=self.frame_bytes_max,
            head=bytes(self._area[start : start + self._head_bytes]),
        )
