"""Row patterns (MATCH_RECOGNIZE): from a pattern over the rows of a partition to the kernel that finds its matches.

Semantics: the rows of a partition in order; from each start, the matches of the pattern are ordered as SQL orders them
(alternatives from left to right, greedy quantifiers with most rows first, reluctant ones with fewest), and the first
one all of whose rows satisfy the conditions of their variables is taken. A repetition that takes no row and is not
asked for is no match.

    tree.py      the pattern and its text
    spec.py      all of a MATCH_RECOGNIZE but its input: what logical nodes, plan steps and kernels share
    reads.py     what a condition or a measure asks of a match: FIRST, LAST, PREV, NEXT, aggregates, CLASSIFIER,
    MATCH_NUMBER
    program.py   tree → automaton: instructions that take a row, split, test an anchor, accept
    matcher.py   the search of a match from one start, in the kernel language
    history.py   states over the rows mapped so far, from which reads are answered
    values.py    reads → values
    (kernels/operators/match.py walks the rows of a shard with these and makes the rows of the result)

The automaton is a table of a few words per instruction. The search for a match is depth first, with the remaining
alternatives on a stack, so the first match found is the preferred one. Most conditions depend only on the row and its
neighbours in the partition (`x`, PREV, NEXT). They are computed ahead, for all rows of a partition in one loop, and the
search reads bits. Then only (instruction, row) decides whether a match can be completed from there. Failed attempts are
marked, for all later starts too, and never repeated. So the search costs at most instructions x rows steps, and a match
its length, whatever the pattern; for regular expressions this is called memoized backtracking. Marks are kept where
paths meet. They are removed for the rows of a match that may be visited again, and where WITHIN, which moves with the
start, cut a search.

A condition on the match so far (FIRST, LAST of another variable, aggregates) is computed when the row is tried. The
states that it needs are kept for every row of the path, so going back costs nothing and a step costs the same however
long the match is. With such conditions nothing is marked before the last of them, since another path may satisfy what
this one did not. So patterns with many ways to map the same rows cost, in the worst case, time exponential in the
length of a match. The kernel checks for cancellation while it searches.

Live runs (consume, punctuate, state, restore): rows wait by key until a punctuation passes them; their order is then
final. The search from a start is decided when it ends before the last such row, or when WITHIN does. It then emits,
moves the start, and frees the rows before it. The state of a key is these rows, the start, the number of matches and
the row up to which all are covered. The walk here keeps the same between two searches; labels, stack and marks belong
to one search and are made again."""
