"""Tag (Pineau et al. 2003): find an opponent that runs away, and tag it."""

from baddr.domains import members_of_model

__getattr__ = members_of_model(__name__)
