"""What many slots and trials cost the driver: `make bench-slots`."""
