"""Agents: one file each."""
