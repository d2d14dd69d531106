"""The leak audit: could what the models see tell the outcome? Light models on counts, no test row."""
