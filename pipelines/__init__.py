"""Raw tables to events, tokens, SeqSet shards and labels. Knows no torch and no Dagster."""

from schemas.extras import need

need("pipelines")
