"""Runs a physical plan over rows that arrive: batches and punctuations in, results as soon as they are final, state
that shrinks.

`LiveQuery` (query.py) is a plan taken apart at the steps that must remember rows. Each becomes an operator with one
shape:

    consume(side, rows)    rows of an input, in any order and in any batches
    punctuate(progress)    what the inputs promise of the rows to come; gives the rows that are final now, and forgets
    what nothing needs any more
    state(), restore(..)   what is remembered, as Arrow tables

In: Arrow batches of named scans and punctuations ("no later row of this scan is before t"; the last one ends it). Out:
batches of the result. Batches, order of arrival and punctuations never change the rows of a result, only when they
appear; the run over bounded input is the same with one punctuation at the end.

How an operator works: it holds rows as columns (`Chunk`s) and computes by running parts of the plan over them, with the
execution and the kernels of the local backend (fragments.py). Aggregates hold states, not rows. So there is no second
implementation of anything: what is new here is only which rows are final (`planner/physical/progress.py`), and
`operators_of_steps.py`, the one place that says how a step is run live and why it holds what it holds. Steps over
lifetimes are run in groups (lifetimes/). `boundedness.py` tells what could never end.

Memory belongs to the operators, as chunks that Arrow counts; a fragment frees what it made when it ends. An error of a
fragment (an overflow, say) is raised to whoever called, with the position in the SQL, and the query is over. Cost: a
batch costs what the bounded run costs for it and about a millisecond; a punctuation costs the rows that become final
and one pass over what is held."""
