"""`python -m pipelines.sources.synthetic` of earlier releases: the same as `python -m pipelines.synthetic`."""

from pipelines.synthetic.__main__ import main

if __name__ == "__main__":
    raise SystemExit(main())
