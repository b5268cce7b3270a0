"""The problems on which searches are compared."""
