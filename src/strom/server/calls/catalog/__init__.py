"""Calls on what there is: databases, tables, partitions, where they are and how they are."""
