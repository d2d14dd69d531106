"""How NEST runs on Dagster: processes, run history, cached steps and errors. README.md lists the private imports."""
