"""Files on this host, on HDFS and elsewhere."""
