"""The dynamic loader's cache: read, merged, written as bytes. Pure."""
