"""The counts, shares and histograms of the data card, from which figures can be drawn without rows."""

from collections.abc import Mapping
from itertools import pairwise

import polars as pl

from schemas.cards import UNMAPPED, Flow
from schemas.errors import InputError
from schemas.nouns import with_noun
from schemas.suppress import suppress_count, suppress_small
from schemas.tables.seqset import NO_END, TARGET_HIDDEN
from schemas.tables.vocab import UNK

MOST_SHARE_OF_SOURCE = {"NoDx": 0.05, "NoPCS": 0.05, "not_in_gem": 0.02, "no_atc": 0.10, "not_top_lab": 0.10}
MOST_UNK_SHARE = 0.05
MOST_OTHER_UNITS_SHARE = 0.01
HOW_TO_MEND = {
    "no_stay": "they lie in no encounter. Give encounters and events of the same subjects and times.",
    "unmapped": "their codes are in no crosswalk. Give codes and crosswalks of one release.",
    "grown_up": "they lie in encounters from the 18th birthday on. Give the encounters before it.",
    "no_atc": "their names have no ATC code in the drug lookup. Fit it on a source that has these drugs.",
    "not_top_lab": "their items are not in the vocabulary. Fit it on a source that has these measurements.",
}


def tokenized_flow(source_flow: Flow, token_flow: Flow) -> Flow:
    """Chain two flows into one from source rows to tokens, with each reason counted once.

    `unmapped` of the second flow is split by the notes of the first: NoDx, NoPCS or not in the crosswalk at all.
    """
    reasons = dict(token_flow.dropped)
    unmapped_rows = {name: rows for name, rows in source_flow.noted.items() if name in UNMAPPED}
    if sum(unmapped_rows.values()) == reasons.get("unmapped", -1):
        reasons = {**unmapped_rows, **{name: rows for name, rows in reasons.items() if name != "unmapped"}}
    return Flow(
        source_rows=source_flow.source_rows,
        kept_rows=token_flow.kept_rows,
        dropped={**source_flow.dropped, **reasons},
    )


def refuse_no_token(token_flows: Mapping[str, Flow], sets: int) -> None:
    """Raise InputError if no set holds a token; the message gives the number of events and the main drop reason.

    Args:
        token_flows: kind -> flow from events to tokens.
        sets: the number of sets.
    """
    whole = sum(token_flows.values(), Flow(source_rows=0, kept_rows=0))
    if whole.kept_rows:
        return
    problem = f"seqset: there is no token in any of {with_noun(suppress_small(sets), 'set')}: "
    if not whole.source_rows:
        raise InputError(
            f"{problem}there are no events. The card of the events says what was dropped; supply what is missing."
        )
    reason = max(whole.dropped, key=lambda name: whole.dropped[name])
    events = suppress_count(whole.dropped[reason], whole.source_rows)
    share = f"{events} of {with_noun(suppress_small(whole.source_rows), 'event')}"
    raise InputError(f"{problem}{share} were dropped as {reason}, {HOW_TO_MEND[reason]}")


def histogram(name: str, sizes: pl.Series) -> dict[str, int]:
    """Return `name[low,high)` -> count of sizes in that bin, for bins 0, 1, 2-3, 4-7, … without gaps."""
    largest = int(sizes.max() or 0)  # type: ignore[arg-type]
    edges = [0, *(2**power for power in range(largest.bit_length() + 1))]
    bins = {
        f"{name}[{low},{high})": sizes.is_between(low, high, closed="left") for low, high in pairwise(edges)
    }
    return {label: int(inside.sum()) for label, inside in bins.items()}


def shard_counts(sets: pl.DataFrame, usage: pl.DataFrame) -> dict[str, int]:
    """Return the counts of the data card; sets with hidden content are counted separately and nowhere else.

    Args:
        sets: subject_id, flags, size (tokens) of every set.
        usage: kind, token (as written), token_id, backed_off, count; keys may repeat.
    """
    is_hidden = sets["flags"] & TARGET_HIDDEN != 0
    subjects, hidden_sets, sets = sets["subject_id"].n_unique(), int(is_hidden.sum()), sets.filter(~is_hidden)
    usage = usage.group_by("kind", "token", "token_id", "backed_off").agg(pl.col("count").sum())
    unk = pl.col("token_id") == UNK
    token_counts = {
        "tokens": pl.col("count").sum(),
        "distinct_tokens": pl.col("token_id").n_unique(),
        "unk_tokens": pl.col("count").filter(unk).sum(),
        "backed_off_tokens": pl.col("count").filter("backed_off").sum(),
    }
    counts = {
        "subjects": subjects,
        "sets": sets.height,
        **({"hidden_sets": hidden_sets} if hidden_sets else {}),
        "empty_sets": int((sets["size"] == 0).sum()),
        "sets_without_end": int((sets["flags"] & NO_END != 0).sum()),
        **usage.select(**token_counts).row(0, named=True),
    }
    by_kind = usage.group_by("kind").agg(
        tokens=token_counts["tokens"],
        distinct_codes=pl.col("token").n_unique(),
        distinct_tokens=pl.col("token_id").filter(~unk).n_unique(),
        unk_tokens=token_counts["unk_tokens"],
        backed_off_tokens=token_counts["backed_off_tokens"],
    )
    for row in by_kind.sort("kind").iter_rows(named=True):
        kind = row.pop("kind")
        counts |= {f"{name}_{kind}": count for name, count in row.items()}
    per_subject = sets.group_by("subject_id").agg(sets=pl.len(), tokens=pl.col("size").sum())
    return {
        **counts,
        **histogram("tokens_per_set", sets["size"]),
        **histogram("sets_per_subject", per_subject["sets"]),
        **histogram("tokens_per_subject", per_subject["tokens"]),
    }


def shard_shares(counts: dict[str, int], flows: dict[str, Flow]) -> dict[str, float]:
    """Return the shares of the data card, each between 0 and 1."""
    tokens = max(counts["tokens"], 1)
    shares = {
        "unk": counts["unk_tokens"] / tokens,
        "backed_off": counts["backed_off_tokens"] / tokens,
        "empty_sets": counts["empty_sets"] / max(counts["sets"], 1),
    }
    if labs := flows.get("LAB"):
        num_values = labs.kept_rows + labs.dropped["not_top_lab"] + labs.dropped["no_stay"]
        shares["lab_rows_in_vocabulary"] = 1 - labs.dropped["not_top_lab"] / max(num_values, 1)
    return shares


def unit_warnings(in_other_units: int, lab_rows: int) -> list[str]:
    """Warn if many values are in another unit than most values of their item, because all share the same cuts."""
    if in_other_units <= MOST_OTHER_UNITS_SHARE * lab_rows:
        return []
    share = f"{_share_or_count(in_other_units, lab_rows)} of {suppress_count(lab_rows)} laboratory values"
    usual = f"usual: below {MOST_OTHER_UNITS_SHARE:.0%}"
    return [f"LAB: {share} are in another unit than most of their item ({usual})."]


def share_warnings(flows: dict[str, Flow], shares: dict[str, float]) -> list[str]:
    """Return a warning for each unusual share: nothing may be wrong, but somebody should look."""
    sentences = []
    for kind, flow in flows.items():
        num_rows = flow.kept_rows + sum(
            flow.dropped.get(reason, 0) for reason in (*MOST_SHARE_OF_SOURCE, "no_stay")
        )
        for reason, most in MOST_SHARE_OF_SOURCE.items():
            count = flow.dropped.get(reason, 0)
            if count > most * num_rows:
                share = f"{_share_or_count(count, num_rows)} of {suppress_count(num_rows)} rows"
                sentences.append(f"{kind}: {share} dropped as {reason} (usual: below {most:.0%}).")
    if shares["unk"] > MOST_UNK_SHARE:
        sentences.append(f"{shares['unk']:.1%} of all tokens are [UNK] (usual: below {MOST_UNK_SHARE:.0%}).")
    if shares["empty_sets"] > 0.5:
        sentences.append(f"{shares['empty_sets']:.1%} of all sets hold no token.")
    return sentences


def _share_or_count(count: int, of: int) -> str:
    """Return the share, or the suppressed count if the share would disclose a small count."""
    as_shown = suppress_count(count, of)
    return f"{count / of:.1%}" if as_shown == f"{count:,}" else as_shown
