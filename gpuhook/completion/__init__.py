"""Completion of our command lines in bash, zsh and fish, made from the commands' own tables of options."""
