"""The rim: when, where and with what. The only room that knows Dagster; no logic lives here."""

from schemas.extras import need

need("assets")
