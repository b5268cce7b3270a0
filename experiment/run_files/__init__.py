"""A run on disk: manifest, journal, owner; reading and repairing it."""
