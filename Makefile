# make test, make demo: both set themselves up on a fresh Debian or Ubuntu machine.
.PHONY: help test test-real-driver lint unit setup demo bench clean
.DEFAULT_GOAL := help

help:            ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

setup:           ## make .venv and install what the tests run (as root on Debian or Ubuntu)
	tools/provide gcc=gcc ld=binutils runc=runc crun=crun busybox=busybox-static newuidmap=uidmap ldconfig=libc-bin \
		dockerd=docker.io docker=docker.io containerd=containerd podman=podman strace=strace unshare=util-linux \
		zsh=zsh fish=fish
	tools/venv test

lint: setup      ## style, types and house rules
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy

ROOT_TIERS = engine or runtime or attack

test: lint       ## everything but the benchmark; what mounts and starts containers runs alone, one after another
	.venv/bin/pytest -n 2 -m "not ($(ROOT_TIERS))"
	.venv/bin/pytest -m "$(ROOT_TIERS)"

test-real-driver: setup  ## NVIDIA's real files, other releases' C libraries (fetches 650 MB from Debian, once)
	tools/provide readelf=binutils
	.venv/bin/python -m tools.real_driver
	.venv/bin/python -m tools.glibc
	GPUHOOK_REAL_DRIVER=1 .venv/bin/pytest -m real_driver tests/real_driver

unit: setup      ## the tests that need neither root nor a runtime
	.venv/bin/pytest -n 2 -m "not ($(ROOT_TIERS))"

demo:            ## a real container finds its GPUs (the fake driver's where there is no other)
	@tools/demo

bench: setup     ## what a start costs: the hook against the bare interpreter, then a real container with and without it
	.venv/bin/python bench/start.py
	.venv/bin/python bench/container.py

clean:           ## remove what the other targets made
	rm -rf .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache build *.egg-info
