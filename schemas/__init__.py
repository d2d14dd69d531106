"""What crosses a border between rooms: Arrow schemas, pydantic models, expectation suites. Imports nothing of ours."""
