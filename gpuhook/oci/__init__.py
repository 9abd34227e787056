"""What a runtime hands over: the state on stdin and the bundle."""
