"""Calls about the lake: who tiers what, what rounds report, buckets that go on where the lake ends."""
