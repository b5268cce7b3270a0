"""The files of a run: manifest, journal, owner; reading and repairing them."""
