"""What the container asks for. Pure."""
