"""Checks of this node, one line a finding: what is wrong, how it shows, what to do. Reads, and changes nothing."""
