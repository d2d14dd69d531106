"""Work in parallel and in little memory; nothing here knows of patients."""
