"""Runs in the environment of ACES: `python labels.py TASK.yaml FOLDER OUT.parquet`, over each MEDS shard there."""

import sys
from pathlib import Path

import polars as pl
from aces.config import TaskExtractorConfig
from aces.predicates import get_predicates_df
from aces.query import query
from omegaconf import DictConfig

task, folder, out = sys.argv[1:]
config, frames = TaskExtractorConfig.load(task), []
for shard in sorted(Path(folder).rglob("*.parquet")):
    read = DictConfig({"path": str(shard), "standard": "meds", "ts_format": None})
    frames.append(
        query(config, get_predicates_df(config, read)).select("subject_id", "index_timestamp", "label")
    )
pl.concat(frames, how="vertical_relaxed").write_parquet(out)
