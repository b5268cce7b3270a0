"""A slot: one Spark task that runs trials, each in a process that it starts and ends."""
