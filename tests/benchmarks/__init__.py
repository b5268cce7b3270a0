"""Benchmarks: programs that print ratios measured in one run. `make bench` runs `main_job`."""
