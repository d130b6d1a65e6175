"""Merge engines: what becomes of the row that is there when another comes for its key."""
