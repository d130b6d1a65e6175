"""A server's status: buckets, tables, rates. Messages and plain data, so that it can be sent."""
