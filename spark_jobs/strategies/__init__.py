"""How the workers of one trial train together."""
