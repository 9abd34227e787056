"""gpuhook gives a container its GPUs: an OCI prestart hook and the path around it."""

__version__ = "0.1.0"
