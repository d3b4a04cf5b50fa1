"""Live operators over lifetimes. What SQL says of a temporal relation becomes several steps of a plan (window functions
over starts, joins with the times between). One by one they would have to wait for rows that may never come. So a group
of such steps is found in the plan (`regions.py`) and run by one operator, which knows that later rows start later."""
