"""The speed and the accuracy of one training over several workers: `make bench-training`."""
