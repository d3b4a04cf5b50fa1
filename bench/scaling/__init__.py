"""What the driver does at scale: measured (`driver.py`, `launch.py`) and simulated (`simulate.py`, `cases.py`)."""
