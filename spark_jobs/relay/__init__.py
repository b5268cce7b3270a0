"""One connection to the driver for all slots of an executor."""
