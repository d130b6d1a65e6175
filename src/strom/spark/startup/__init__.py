"""A folder on the module path of Spark's Python processes; its ``sitecustomize`` runs when they start.

Strom imports nothing from here.
"""
