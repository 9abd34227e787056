"""Bundles and settings for tests, with everything that a test does not care about filled in."""

from gpuhook.oci.bundle import Bundle, Mount

FOLDER = "/var/run/nvidia-container-devices"


def bundle(*places: str, source: str = "/dev/null", **env: str) -> Bundle:
    """A bundle with mounts at these places (relative ones below FOLDER) and this environment."""
    mounts = tuple(
        Mount(destination=place if place.startswith("/") else f"{FOLDER}/{place}", source=source, index=number)
        for number, place in enumerate(places)
    )
    return Bundle(path="/b", env=env, mounts=mounts, root_path="rootfs")
