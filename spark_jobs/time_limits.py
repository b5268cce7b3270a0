"""Time limits that depend on each other, in seconds, with the reason of each relation.

`tests/spark_jobs/test_time_limits.py` checks the relations. A limit that depends on no other one
stands in the module that uses it.
"""

# A slot's calls to the driver, over gRPC.

KEEPALIVE = 10.0
"""Between two pings on a connection without data, so that one that died is noticed."""

KEEPALIVE_ANSWER = 5.0
"""For the answer to a ping; a connection is made anew after both."""

KEEPALIVE_ALLOWED = 5.0
"""Between two pings at the least, or the driver closes the connection: below `KEEPALIVE`."""

RECONNECT = 5.0
"""Between two tries to connect, at the most; gRPC's own two minutes would be above `ANSWER`."""

IDLE = 60.0
"""Without a call before the driver closes a connection: above `SLOT_BEAT`, so that it stays open
while a trial runs."""

WAIT = 10.0
"""For which the driver keeps a slot waiting before it answers that there is no work yet."""

ANSWER = 20.0
"""For the answer to one call: above `WAIT`, which is no outage, and above what `KEEPALIVE` takes to
notice a dead connection."""

LAST_REPORTS = 30.0
"""For a trial's last reports to arrive: above `ANSWER`, so that what got no answer is sent again
before the outcome."""

# The same calls through the mailbox. Each takes a few looks at a folder, so slots ask less often.

MAILBOX_WAIT = 30.0
"""As `WAIT`."""

MAILBOX_ANSWER = 60.0
"""As `ANSWER`: above `MAILBOX_WAIT`, and the looks of both sides at their folders."""

# Outages: for how long something is tried again.

HDFS_CONNECT = 5.0
"""To connect to HDFS."""

HDFS_PIECE = 30.0
"""Between two pieces of an answer of HDFS, and to send a piece."""

HDFS_WRITTEN = 75.0
"""For the answer after sending: HDFS needs a minute to replace a DataNode that hangs, and who gives
up sooner finds the others busy with what it gave up."""

HDFS_OUTAGE = 60.0
"""For which one call to HDFS is made again: a call that hung is made at least once more."""

OUTAGE = 600.0
"""For which a slot asks a driver that does not answer again, and for which slot and driver try a
run's folder again: far above `HDFS_OUTAGE`, so that a call that failed is made again, and above
`LEAVING`, by when a slot that sees the driver's mark has left."""

# Slots that are lost. Where Spark does not tell, the driver infers it from their silence.

SLOT_BEAT = 30.0
"""Without a report before a slot says that its trial runs."""

SLOT_SILENCE = 300.0
"""Without a message before a slot is taken for lost: above two calls in a row that got no answer.
A slot is also silent while it starts a process, which may take a minute or two."""

SLOT_GAP = 60.0
"""Without a message of any slot that count at most: longer, it is the driver that hears none. Above
`SLOT_BEAT` and `MAILBOX_WAIT`, so that time also passes where only one other slot speaks."""

# Drivers that are gone. Other drivers and slots infer it from the driver's mark.

DRIVER_BEAT = 5.0
"""Between two signs of life of a driver, and between two looks of a slot at them."""

DRIVER_SILENCE = 30.0
"""Without one before a driver is taken for dead: some may be late on a storage that is slow."""

LEAVING = SLOT_BEAT + MAILBOX_ANSWER + DRIVER_SILENCE
"""From a driver's last sign of life until its slots leave: one whose trial reports nothing calls
after `SLOT_BEAT`, gets no answer for `MAILBOX_ANSWER`, and then watches the driver's mark."""

# Processes of a trial. The zygote supervises it, and the slot the zygote.

ZYGOTE_BEAT = 5.0
"""Between two signs of life of a zygote while a trial runs."""

ZYGOTE_SILENCE = 60.0
"""Without one before the slot ends a zygote: many beats, since a host may be busy."""

STOP_HEARD = 60.0
"""That a trial has at least to hear that it is to stop."""

SWEEP = 5.0
"""For killed processes to disappear."""

ZYGOTE_END = 10.0
"""For a zygote to end before it is killed: above `SWEEP`, which it uses to end its trial."""

SLOTS_END = 10.0
"""For slots to end after the last trial, before their job is cancelled: at least `ZYGOTE_END`."""

TASKS_END = 15.0
"""For the tasks of a job that is over: above `ZYGOTE_END`, which a slot may wait."""

# The server of Spark Connect.

SERVER_ANSWER = 5.0
"""For the answer to one call; pyspark's client would try for ten minutes."""

SERVER_LOOK = 5.0
"""Between two looks whether the server is there: at least `SERVER_ANSWER`, or looks would queue."""

SERVER_REFUSAL = 60.0
"""For which it may refuse to answer, as while a token is replaced: many looks."""

SERVER_CANCEL = 10.0
"""For which one that does not answer is told to cancel a job: above `SERVER_ANSWER`, so that it is
told twice."""

# Files that are uploaded to HDFS.

UPLOAD = 5.0
"""Between two rounds of uploading what a trial writes."""
