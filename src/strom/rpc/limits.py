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
    """Connections of the listener; any more are closed immediately."""
    connections_before_login_max: int = 256
    """Connections of one address that have not logged in, if a login is required; beyond it the oldest is closed."""
    connection_inflight_bytes_max: int = 64 * MIB
    """Unanswered requests. A single larger frame is accepted when nothing else is in flight."""
    inflight_bytes_max: int = 512 * MIB
    """The same over all connections, plus unread answers."""
    calls_max: int = 1000
    """Unanswered calls."""
    answer_bytes_high: int = 64 * KIB
    """Above this many unsent bytes the connection's requests are not read."""
    answer_bytes_max: int = 256 * MIB
    """Above this many unsent bytes the connection is dropped."""
    idle_timeout_s: float = 600.0
    """Nothing received and nothing to answer."""
    login_timeout_s: float = 10.0
    """Time to log in, if a login is required."""
    frame_timeout_s: float = 30.0
    """How long a frame that has begun may stall, and how long it may take; a large one has one more second per
    ``frame_bytes_per_s_min``."""
    frame_bytes_per_s_min: int = 256 * KIB
    memory_patience_s: float = 1.0
    """How long a request waits for memory without progress before slow holders of memory are dropped."""
    memory_hold_s_max: float = 10.0
    """Slow: at their recent pace they would hold their memory for longer than this."""
    stall_timeout_s: float = 60.0
    """How long the other side may leave its answers unread."""
    login_attempts_max: int = 3
    slow_call_s: float = 0.0
    """Calls that take longer are logged; 0: none."""

    @property
    def look_every_s(self) -> float:
        """How often connections are checked: often enough that a timeout is at most a quarter late."""
        shortest = min(self.idle_timeout_s, self.login_timeout_s, self.frame_timeout_s, self.stall_timeout_s)
        return min(1.0, shortest / 4)
