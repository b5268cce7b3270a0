"""Search spaces and search algorithms, as pure values and functions.

Nothing here uses Spark, TensorFlow, files, the clock or global random numbers: an algorithm is an
object with `ask` and `tell` (see `search.searcher`), and `search.searcher.drive` runs one against a
plain function.
"""
