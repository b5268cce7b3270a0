"""The servers of Spark and HDFS that tests start, and the settings of their JVMs."""
