"""Who does it: nvidia-container-cli, or the embedded engine."""
