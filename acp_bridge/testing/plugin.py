"""Pytest plugin: snapshot scenarios for bridges and their editors."""
