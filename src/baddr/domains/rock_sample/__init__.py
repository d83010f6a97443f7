"""RockSample (Smith and Simmons 2004): a rover looks at rocks from afar, samples good ones and leaves."""

from baddr.domains import members_of_model

__getattr__ = members_of_model(__name__)
