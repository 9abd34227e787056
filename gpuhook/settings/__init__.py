"""What the node decided: config.toml and the snapshot of it."""
