"""A slot: one Spark task that runs trials, each in a process of its own."""
