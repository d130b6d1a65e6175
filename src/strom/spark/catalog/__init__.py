"""Strom as a catalog of Spark SQL: what the Java side asks, answered in Python.

Read ``catalog_calls.py`` first.
"""
