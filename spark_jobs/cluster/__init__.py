"""Facts about Spark: its version, executors and hosts, and the exposure of its ports."""
