"""Battleship (Silver and Veness 2010): sink a hidden fleet with as few shots as possible."""

from baddr.domains import members_of_model

__getattr__ = members_of_model(__name__)
