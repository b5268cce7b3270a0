"""How searches end and are stopped, and how they are resumed."""
