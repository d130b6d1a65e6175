"""Shared by every room of Strom in Spark: options, types, filters, tasks, one connection per worker.

Imports no other room.
"""
