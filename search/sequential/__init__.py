"""Algorithms that propose one configuration after the other."""
