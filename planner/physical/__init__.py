"""Physical plans: steps and their contracts, the passes that complete and check a plan, and the plan file."""
