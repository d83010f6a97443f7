"""Where things that can be made again are kept on disk. Needs no JAX."""

import os
from pathlib import Path


def root() -> Path:
    """$BADDR_CACHE, or the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("BADDR_CACHE") or Path(home) / "baddr")


def compiled_code() -> Path:
    return root() / "compiled"
