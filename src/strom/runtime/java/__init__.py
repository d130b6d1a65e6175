"""Java, for the programs that need it: Spark, and the ZooKeeper of small installations. Read ``java_home.py``."""
