"""The state of one bucket of a primary-key table: index, rows, series, engines, and the peer's row format."""
