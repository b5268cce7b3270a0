"""What Spark tells of itself: its version, executors and their hosts, how open it is."""
