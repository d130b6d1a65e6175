"""Calls that publish rows of many buckets at once: stages, decisions, cuts.

Read ``stages.py`` first (what tablets do), then ``sinks.py`` (what the coordinator does).
"""
