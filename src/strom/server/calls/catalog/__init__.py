"""Calls on the catalog: databases, tables, partitions, where they are, and their status."""
