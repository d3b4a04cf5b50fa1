"""How each step of a plan runs on the threads of one process."""
