"""`gpuhook-runtime`: an OCI runtime that changes config.json before `create` and leaves the rest to another one."""
