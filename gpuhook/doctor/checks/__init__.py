"""The checks, a module for each family (gpuhook/doctor/registry.py)."""
