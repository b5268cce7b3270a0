"""Searches that read and write HDFS, and copy data and checkpoints."""
