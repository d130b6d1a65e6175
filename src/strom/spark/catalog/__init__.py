"""Strom as a catalog of Spark SQL: answers the calls of the Java side.

Read ``catalog_calls.py`` first.
"""
