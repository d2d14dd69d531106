"""A source's input: the user's own tables where they are set, or synthetic ones."""
