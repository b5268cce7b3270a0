"""Checks the arguments of a call and builds a search from them."""
