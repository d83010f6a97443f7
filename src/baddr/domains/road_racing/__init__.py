"""Road racing (Katt et al. 2022): n lanes with a slower car in each; keep away from the car ahead."""

from baddr.domains import members_of_model

__getattr__ = members_of_model(__name__)
