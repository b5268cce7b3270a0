"""From the arguments of a call to a checked search."""
