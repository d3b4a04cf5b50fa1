"""Jobs in processes of their own that are killed at random moments and started again: what they leave is the answer.

    cases.py     the streams, a query for each kind of target, and the answers
    worker.py    the processes that run the jobs
    campaign.py  kills them

`python -m tests.live.kills --kills 1000` is the long run; tests/live/jobs/test_kills.py a short one."""
