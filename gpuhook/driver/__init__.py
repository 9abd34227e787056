"""What the host's driver offers. Reads the host and changes nothing."""
