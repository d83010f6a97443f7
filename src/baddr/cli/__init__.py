"""The command line: one file a command."""

from baddr.cli.main import main

__all__ = ["main"]
