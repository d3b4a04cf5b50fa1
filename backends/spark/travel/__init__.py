"""What executors must have: `look.py` tells what they have, `check.py` compares, `package.py` makes what is sent."""
