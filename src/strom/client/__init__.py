"""The client: one async core that everything outside the servers goes through.

Promises: every call ends (answer, typed error or timeout); a failed write is raised, never dropped; rows of one writer
arrive in order and once per bucket, also across server restarts; memory stays within bounds that are options. It does
no per-row work beyond what Python rows need, and imports neither server code nor heavy libraries.

Read first: ``cluster/cluster.py`` (who is where, and retries), then ``write/row_writer.py`` (rows in) and
``read/log_scan.py`` (rows out). The faces that people use are in ``strom.api`` (blocking) and ``strom.aio`` (async).
"""
