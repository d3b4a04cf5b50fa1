"""Jobs: live queries that read streams, write to a sink, and survive a crash.

    streams.py       a stream in a plan, and how its reader is opened
    splits.py        streams that end: files and tables, read in the order of their times
    feed.py          a thread per stream that reads ahead
    inputs.py        what the rows of a stream pass on their way: late rows, watermarks, promises
    emission.py      when the rows of the result leave, and as what
    checkpoint.py    state, offsets and output of an epoch in a folder
    job.py           the loop that does all of this, in one thread
    progress.py      what a job tells of itself

docs/design/jobs.md has the design."""
