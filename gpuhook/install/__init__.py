"""Registers gpuhook with container engines, tells what is registered, and takes it away again.

Each engine has a module that turns a wish into changed files (text → text, nothing written); change.py writes them,
all or none, and journal.py remembers what stood there before.
"""
