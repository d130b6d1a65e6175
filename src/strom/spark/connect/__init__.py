"""What every part of Strom in Spark needs: options, types, filters, tasks, one connection per worker.

Imports no other room.
"""
