"""A sensor for each source: its input changed, so its whole chain is run again; unchanged steps are skipped."""

import hashlib
import json

import dagster as dg

from assets.resources import Workspace
from assets.sources.common import steps_of
from schemas.cards import stamps_of
from schemas.errors import NestError

SECONDS_BETWEEN_LOOKS = 300


def input_sensor(source: str) -> dg.SensorDefinition:
    """Return the sensor `<source>_input_changed`, which is off by default."""

    @dg.sensor(
        name=f"{source}_input_changed",
        job_name=f"{source}_full",
        minimum_interval_seconds=SECONDS_BETWEEN_LOOKS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"Runs {source}_full where files of the input have changed and then stayed as they are for a look.",
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        try:
            fingerprint = input_fingerprint(source)
        except NestError as error:
            return dg.SkipReason(str(error))
        if fingerprint is None:
            return dg.SkipReason(f"the input of {source} is synthetic, which does not change")
        cursor = json.loads(context.cursor or "{}")
        if fingerprint == cursor.get("run"):
            return dg.SkipReason("the input is as it was")
        is_settled = fingerprint == cursor.get("seen")  # else files may still be copied there
        update = json.dumps({"seen": fingerprint, "run": fingerprint if is_settled else cursor.get("run")})
        if not is_settled:
            return dg.SensorResult(
                skip_reason="the input has changed; is it complete? The next look says", cursor=update
            )
        # without a run key: Dagster would run no second time for an input that is as it once was
        return dg.SensorResult(run_requests=[dg.RunRequest()], cursor=update)

    return look


def input_fingerprint(source: str) -> str | None:
    """Return a hash of the names, sizes and times of a source's input files; None where the input is synthetic.

    Raises:
        NestError: the input is missing, cannot be read, or lies in a database.
    """
    workspace = Workspace()
    steps = steps_of(workspace, source)
    if not steps.is_in_files:
        raise NestError(
            f"the input of {source} lies in a database, where a change is not seen; run {source}_full after each load"
        )
    own_files = [path for path in steps.input_files if not path.is_relative_to(workspace.layout(source).root)]
    if not own_files:
        return None
    stamps = {name: list(stamp) for name, stamp in stamps_of(own_files).items()}
    return hashlib.sha256(json.dumps(stamps, sort_keys=True).encode()).hexdigest()[:16]
