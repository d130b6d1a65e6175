"""Spark itself: a session configured for Strom, a Java to run it, the catalog's jar."""
