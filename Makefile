# make test, make demo: both set themselves up on a fresh Debian or Ubuntu machine.
.PHONY: help test lint unit setup demo bench clean
.DEFAULT_GOAL := help

help:            ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

setup:           ## make .venv and install what the tests run (as root on Debian or Ubuntu)
	tools/provide gcc=gcc ld=binutils runc=runc crun=crun busybox=busybox-static newuidmap=uidmap ldconfig=libc-bin
	tools/venv test

lint: setup      ## style, types and house rules
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy

test: lint       ## everything but the benchmark
	.venv/bin/pytest -n 2 --dist loadgroup

unit: setup      ## the tests that need neither root nor a runtime
	.venv/bin/pytest -n 2 -m "not engine and not runtime and not attack"

demo:            ## a real container finds its GPUs (the fake driver's where there is no other)
	@tools/demo

bench: setup     ## what a container start costs, against the bare interpreter
	.venv/bin/python bench/start.py

clean:           ## remove what the other targets made
	rm -rf .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache build *.egg-info
