"""One machine for all tests of daemons, with Docker and containerd, on which gpuhook was installed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.daemons.site import Site, image_tar, make_site
from tests.rig.needs import need
from tests.rig.process import Result


@dataclass
class Docker:
    """dockerd on the machine; `image` is in it."""

    site: Site
    image: str = "probe"

    def __call__(self, *words: str, program: str = "docker", env: dict[str, str] | None = None) -> Result:
        """A docker command's outcome."""
        return self.site.run(program, *words, env=env)

    def start(self) -> None:
        """Start containerd and dockerd with their usual paths."""
        self._containerd = self.site.start(
            "containerd", ready=lambda: self.site.run("ctr", "version").status == 0, log="containerd.log"
        )
        self._dockerd = self.site.start("dockerd", ready=lambda: self("version").status == 0, log="dockerd.log")

    def restart(self) -> None:
        """Restart dockerd, as the installation asks for."""
        self.site.stop(self._dockerd)
        self._dockerd = self.site.start("dockerd", ready=lambda: self("version").status == 0, log="dockerd.log")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    need("dockerd", "docker", "containerd", "ctr")
    made = make_site(str(tmp_path_factory.mktemp("site")))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="session")
def bare_docker(site: Site) -> Docker:
    """Docker before gpuhook."""
    docker = Docker(site)
    docker.start()
    tar = image_tar(site.folder)
    done = docker("import", tar, docker.image)
    assert done.status == 0, done.stderr
    return docker


@pytest.fixture(scope="session")
def docker(bare_docker: Docker) -> Docker:
    """Docker with gpuhook, as the manual says."""
    done = bare_docker.site.gpuhook("install", "docker", "--replace-nvidia")
    assert done.status == 0, done.stderr
    bare_docker.restart()
    return bare_docker
