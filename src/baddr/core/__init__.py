"""What the paper says, for one theta and one run: it reads in an hour."""
