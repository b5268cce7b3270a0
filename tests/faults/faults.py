"""The faults that a run survives, by number. Numbers are names; gaps have no meaning.

The tests of a fault are marked with `@pytest.mark.fault(number)`.
"""

from __future__ import annotations

FAULTS = {
    1: "trial raises",
    2: "os._exit(17), sys.exit",
    3: "SIGKILL, SIGSEGV of itself",
    4: "hangs: sleep, SIGTERM ignored, C loop that holds the GIL",
    5: "out of memory",
    7: "starts children, setsid, double fork",
    9: "changes cwd, environment, signal handlers, seeds",
    10: "returns NaN, inf",
    11: "returns None, str, list, bool, bytes, numpy scalar, 0-d tensor",
    12: "dict without the key, nested, extra keys",
    13: "unpicklable, hostile __reduce__, 1.2 GB return",
    14: "unpicklable train function, SparkContext in the closure, 200 MB closure",
    15: "executor JVM killed",
    16: "Python worker or daemon killed",
    17: "a whole host lost",
    18: "all executors lost, new ones 30 s later",
    19: "no executor ever",
    20: "dynamic allocation or decommission takes executors",
    21: "speculation",
    23: "driver killed -9 at a random point, resumed; repeated",
    24: "two processes resume one run",
    25: "disk full, EIO on fsync, on the driver",
    26: "torn last line, flipped bit, empty or missing segment",
    27: "DataNode killed in the middle of a read or write",
    28: "NameNode restarts, safe mode",
    30: "no permission, quota, read-only",
    31: "log folder not writable on one executor",
    32: "channel cut: dropped, reset, one-way, 60 s, for ever",
    33: "channel slow, driver stopped for 30 s",
    35: "no token, wrong token, an old run's token, another trial's id",
    36: "10,000 connections, connect and wait",
    38: "Ctrl-C in a script, in a notebook cell, twice, during start and end",
    39: "SIGTERM, kernel restart, spark.stop() during a search",
    40: "two searches at once in one driver, same name",
    41: "resume with another space, metric, direction, seed, function",
    42: "unicode, 3,000 characters, empty, '..', newline, RTL parameter names",
    43: "bounds NaN, inf, str, equal, reversed, log with low <= 0, integers beyond 2^53",
    44: "empty grid, empty choices, popsize < 4, generations 0; generators",
    45: "grid of 10^9 points",
    46: "executor with another Python, no TensorFlow, no package of ours",
}
