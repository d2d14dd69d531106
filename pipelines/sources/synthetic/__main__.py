"""`python -m pipelines.sources.synthetic` of earlier releases: the same as `python -m pipelines.synthetic`."""

from pipelines.synthetic.__main__ import main

raise SystemExit(main())
