"""The errors that are the user's to mend, or the disk's: one clear sentence each."""


class UserError(Exception):
    """Something asked for cannot be done as asked; nothing was changed. Exit code 2."""


class StorageError(UserError):
    """A file could not be written or read; what was finished is kept."""


class ClusterError(UserError):
    """The cluster was lost, or could not do the work; what was finished is kept."""
