"""Window functions (OVER): what a call is (`call`, `registry`), and the kernels that compute it over sorted rows.

`kernels/operators/window.py` walks the rows; here is one file per family: `ranking`, `access`, and for aggregates over
frames `folds` (what is folded), `frames` (which rows) and one file per way to fold them: `running`, `sliding`,
`stacks`, `tree`, `naive`."""
