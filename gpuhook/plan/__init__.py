"""What will be done: a Request and an Inventory become a list of operations. Pure."""
