"""Tiering as PySpark jobs: the port ``Jobs`` of ``strom.lake.rounds`` on a Spark session, and the service as a program.

Tasks read and write in Spark's Python workers (``worker.py``), so no row passes through the JVM. ``running.py`` starts
a service, ``progress.py`` shows it to people.
"""
