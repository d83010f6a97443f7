"""What lies on disk: written whole or not at all, checked when read."""
