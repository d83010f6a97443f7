"""The life of one run: plan, act, update the belief, learn; and what it leaves for readers."""
