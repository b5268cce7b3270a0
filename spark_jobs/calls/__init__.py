"""Function calls as trials."""
