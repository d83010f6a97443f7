"""The engine room: what the core says, for stacks of theta and thousands of runs."""
