"""How a delta join begins: Spark joins both tables at an instant, and the changes follow from there.

Read ``starting.py`` first.
"""
