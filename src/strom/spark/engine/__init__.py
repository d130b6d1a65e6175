"""Spark itself: a session that suits Strom, a Java to run it, the catalog's jar."""
