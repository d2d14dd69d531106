"""The jobs: the whole chain, and its three stretches."""

import dagster as dg

CONSOLE = {"loggers": {"console": {"config": {"log_level": "INFO"}}}}  # Dagster's own events stay in the UI

JOBS = [
    dg.define_asset_job(
        "mimic_full",
        dg.AssetSelection.groups("mimic_etl", "mimic_cohorts", "mimic_models", "mimic_report"),
        description="Raw MIMIC-IV to a report: extraction, tokens, cohorts, pretraining, fine-tuning, evaluation.",
        config=CONSOLE,
    ),
    dg.define_asset_job(
        "mimic_etl",
        dg.AssetSelection.groups("mimic_etl", "mimic_cohorts"),
        description="Raw MIMIC-IV to SeqSet shards and labels.",
        config=CONSOLE,
    ),
    dg.define_asset_job(
        "mimic_pretrain",
        dg.AssetSelection.assets("mimic_nest"),
        description="Pretrain NEST on shards that are there.",
        config=CONSOLE,
    ),
    dg.define_asset_job(
        "mimic_finetune",
        (dg.AssetSelection.groups("mimic_models") - dg.AssetSelection.assets("mimic_nest"))
        | dg.AssetSelection.groups("mimic_report"),
        description="Fine-tune, boost and report on a pretrained NEST that is there.",
        config=CONSOLE,
    ),
]
