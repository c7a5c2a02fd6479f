"""Placeholder charter."""
