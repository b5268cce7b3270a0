"""Messages between slots and driver: who may send them, how they travel."""
