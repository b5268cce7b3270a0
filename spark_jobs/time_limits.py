"""Time limits that depend on each other, in seconds, with the reason of each relation.

`tests/spark_jobs/test_time_limits.py` checks the relations. A limit that depends on no other is in
the module that uses it.
"""

# A slot's calls to the driver, over gRPC.

KEEPALIVE = 10.0
"""Between two pings on a connection without data, so that a dead one is noticed."""

KEEPALIVE_ANSWER = 5.0
"""For the answer to a ping; after both, the connection is replaced."""

KEEPALIVE_ALLOWED = 5.0
"""Minimum between two pings, or the driver closes the connection: below `KEEPALIVE`."""

RECONNECT = 5.0
"""Maximum between two tries to connect; gRPC's default of two minutes would be above `ANSWER`."""

IDLE = 60.0
"""Until the driver closes a connection without calls: above `SLOT_BEAT`, so that it stays open
while a trial runs."""

WAIT = 10.0
"""For the driver to answer a waiting slot that there is no work yet."""

LONGER_WAIT = 90.0
"""Maximum added to `WAIT` and `ANSWER` where there are many slots; the driver's last answer says
how much. Not through the mailbox, where a missing answer means a dead driver."""

ANSWER = 20.0
"""For the answer to one call: above `WAIT`, which is no outage, and above what `KEEPALIVE` takes to
notice a dead connection."""

# The same calls through the mailbox. Each takes a few listings of a folder, so slots ask less.

MAILBOX_WAIT = 30.0
"""`WAIT` for the mailbox."""

MAILBOX_ANSWER = 60.0
"""`ANSWER` for the mailbox: above `MAILBOX_WAIT` and the listings of both sides."""

# Through gRPC and through the mailbox.

LAST_REPORTS = 90.0
"""For a trial's last reports to arrive: above `ANSWER` and `MAILBOX_ANSWER`, so that unanswered
ones are repeated before the outcome."""

# Outages: for how long calls are retried.

HDFS_CONNECT = 5.0
"""To connect to HDFS."""

HDFS_PIECE = 30.0
"""Between two pieces of an answer of HDFS, and to send a piece."""

HDFS_WRITTEN = 75.0
"""For the answer after sending: HDFS needs a minute to replace a DataNode that hangs, and a client
that gives up sooner finds the others busy with its abandoned call."""

HDFS_OUTAGE = 60.0
"""For retries of a call to HDFS: long enough to repeat a call that hung."""

OUTAGE = 600.0
"""For retries of a slot whose driver does not answer, and of slot and driver on a run's folder: far
above `HDFS_OUTAGE`, so that a failed call is repeated, and above `LEAVING`, by which a slot that
can read the driver's mark has left."""

# Lost slots. Where Spark does not report them, the driver infers them from their silence.

SLOT_BEAT = 30.0
"""Until a slot without a report sends a heartbeat of its trial."""

GANG_BEAT = 1.0
"""`SLOT_BEAT` of a trial on several slots: so each hears soon that another one has failed."""

MAILBOX_GANG_BEAT = 10.0
"""`GANG_BEAT` for the mailbox, where each heartbeat is several requests to the storage."""

GANG_END = 30.0
"""For the members of a broken gang to end, beside twice the `grace` of the search, from their last
messages on: many times `GANG_BEAT`, after which they hear of it and send the next one, and above
two of `MAILBOX_GANG_BEAT`."""

SLOT_SILENCE = 300.0
"""Until a slot without a message counts as lost: above two unanswered calls in a row, also of slots
that wait longer. A slot is silent, too, while it starts a process, which may take a minute or
two."""

SLOT_GAP = 60.0
"""Maximum silence of all slots that counts: a longer one is the driver's own fault. Above
`SLOT_BEAT` and `MAILBOX_WAIT`, so that time also passes with messages of one other slot only."""

# Drivers that are gone. Other drivers and slots infer it from the driver's mark.

DRIVER_BEAT = 5.0
"""Between two signs of life of a driver, and between two readings of them by a slot."""

DRIVER_SILENCE = 30.0
"""Until a driver without a sign of life is presumed dead: some may be late on slow storage."""

LEAVING = SLOT_BEAT + MAILBOX_ANSWER + DRIVER_SILENCE
"""From a driver's last sign of life until its slots leave: a slot whose trial reports nothing calls
after `SLOT_BEAT`, gets no answer for `MAILBOX_ANSWER`, and then watches the driver's mark."""

# Processes of a trial. The zygote supervises it, and the slot the zygote.

ZYGOTE_BEAT = 5.0
"""Between two signs of life of a zygote while a trial runs."""

ZYGOTE_SILENCE = 60.0
"""Until the slot ends a zygote without a sign of life: many beats, since a host may be busy."""

STOP_HEARD = 60.0
"""Minimum for a trial to receive a stop request."""

SWEEP = 5.0
"""For killed processes to disappear."""

ZYGOTE_END = 10.0
"""For a zygote to end before it is killed: above `SWEEP`, which it uses to end its trial."""

RUNNER_END = ZYGOTE_END + SWEEP
"""For the end of a slot's zygote, and then of the processes that it left."""

SLOTS_END = 15.0
"""For slots to end after the last trial, before their job is cancelled: at least `RUNNER_END`."""

TASKS_END = 20.0
"""For the tasks of an ended job: above `RUNNER_END`, which a slot may wait."""

# The import that the slots of an executor share.

WARM_IMPORT = 120.0
"""For the shared import, or for a fork after it, before slots import by themselves: several times
what TensorFlow takes on a busy host."""

WARM_ANSWER = 130.0
"""For a zygote from keepers, asked in a row: above `WARM_IMPORT`, after which a keeper refuses."""

WARM_READY = 20.0
"""For a zygote from a keeper to be ready, which takes milliseconds. After it the slot imports by
itself; `WARM_ANSWER`, this, `RUNNER_END` and an import are together below `SLOT_SILENCE`."""

OWN_IMPORT = 900.0
"""For a slot's own import, after which no trial can run there: many times `WARM_IMPORT`, since all
slots may read the same slow disk."""

# The workers of a trial on several slots.

CONNECT_FIRST = 60.0
"""For the workers of a trial's first attempt to connect: forked workers start within seconds of
each other, so one that refuses connections for longer has a closed port."""

CONNECT = 1200.0
"""The same for a trial with a checkpoint, or with 'spawn', where each worker imports: above
`OUTAGE`, for which the slot of one worker may retry to copy it, and above `WARM_ANSWER`,
`WARM_READY` and `OWN_IMPORT`, in which it may import anew. If a worker ends meanwhile, or its slot
is lost, the driver ends the others."""

# The relay of an executor.

RELAY_STARTS = 20.0
"""For a relay to start and to reach the driver, before a slot connects to the driver itself."""

RELAY_REACHES = 10.0
"""For a relay to reach the driver: below `RELAY_STARTS`."""

RELAY_SILENCE = 10.0
"""For an answer of a relay, before it is asked whether it runs."""

RELAY_ANSWER = 5.0
"""For a relay to answer whether it runs, and to take a message: with `RELAY_SILENCE` below
`ANSWER`, so that a call notices a relay that hangs."""

RELAY_OUTAGE = 60.0
"""For calls that a relay cannot pass on, before a slot connects to the driver itself: far below
`OUTAGE`, after which the slot gives up."""

RELAY_UNUSED = 10.0
"""For a relay to end after its last slot has left."""

# The server of Spark Connect.

SERVER_ANSWER = 5.0
"""For the answer to one call; pyspark's client would try for ten minutes."""

SERVER_LOOK = 5.0
"""Between two checks of the server: at least `SERVER_ANSWER`, or checks would queue."""

SERVER_REFUSAL = 60.0
"""For refused calls, as while a token is replaced: many checks."""

SERVER_CANCEL = 10.0
"""For cancelling a job on a server that does not answer: above `SERVER_ANSWER`, for two tries."""

# Files that are uploaded to HDFS.

UPLOAD = 5.0
"""Between two rounds of uploading a trial's files."""
