"""A folder for the module path of Spark's Python processes: what lies in it runs when they start.

Nothing of Strom is imported from here.
"""
