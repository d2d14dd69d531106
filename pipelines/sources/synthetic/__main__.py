"""Run `pipelines.synthetic` under its earlier name, `python -m pipelines.sources.synthetic`."""

from pipelines.synthetic.__main__ import main

if __name__ == "__main__":
    raise SystemExit(main())
