"""Calls that publish rows of many buckets at once: stages and decisions.

Read ``stages.py`` first (what tablets do), then ``sinks.py`` (what the coordinator does).
"""
