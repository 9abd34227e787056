"""Why a container gets its GPUs, or does not: the hook's own decisions, told without changing anything."""
