"""What watches a hospital's data from day to day, all of it off until somebody turns it on: docs/operations.md."""
