"""What a listener allows."""

from __future__ import annotations

from dataclasses import dataclass

from strom.protocol.codec import FIELDS_MAX

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, kw_only=True)
class ListenerLimits:
    """Bounds of one listener. Bytes and counts are per connection unless they say otherwise."""

    frame_bytes_max: int = 100 * MIB
    frame_bytes_max_before_login: int = 64 * KIB
    fields_max: int = FIELDS_MAX
    connections_max: int = 2000
    """Of the listener; one more is closed at once."""
    connections_before_login_max: int = 256
    """Of one address, where a login is asked for; with one more the oldest of them is closed."""
    connection_inflight_bytes_max: int = 64 * MIB
    """Requests that are not answered yet. A single larger frame is taken when nothing else is in flight."""
    inflight_bytes_max: int = 512 * MIB
    """The same in all, and answers that wait for readers."""
    calls_max: int = 1000
    """Calls that are not answered yet."""
    answer_bytes_high: int = 64 * KIB
    """Above this many unsent bytes no further request of the connection is read."""
    answer_bytes_max: int = 256 * MIB
    """Above this many unsent bytes the connection is dropped."""
    idle_timeout_s: float = 600.0
    """Nothing received and nothing to answer."""
    login_timeout_s: float = 10.0
    """Connected and not logged in, where a login is asked for."""
    frame_timeout_s: float = 30.0
    """A frame that has begun must go on: so long it may be silent. It must end in this time, too; a large one has a
    second more per ``frame_bytes_per_s_min``."""
    frame_bytes_per_s_min: int = 256 * KIB
    memory_patience_s: float = 1.0
    """Somebody waits for memory, and nothing becomes free: then those go that hold some and get on too slowly."""
    memory_hold_s_max: float = 10.0
    """Too slowly: at the pace of the last moments they would hold it for longer than this."""
    stall_timeout_s: float = 60.0
    """Unsent answers, and the other side does not read any of them."""
    login_attempts_max: int = 3
    slow_call_s: float = 0.0
    """Calls that take longer are told in the log; 0: none."""

    @property
    def look_every_s(self) -> float:
        """How often connections are looked at: often enough that a timeout is late by a quarter at most."""
        shortest = min(self.idle_timeout_s, self.login_timeout_s, self.frame_timeout_s, self.stall_timeout_s)
        return min(1.0, shortest / 4)
