import re

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.corpus.deciles import CUTS
from pipelines.corpus.tokens import (
    cap_patients,
    count_tokens,
    cuts_of,
    encode,
    fit_vocab,
    nearest_token,
    parent_token,
    patients_of,
    roll_up,
    write_tokens,
)
from schemas.tables.vocab import SPECIALS, UNK, content_sha256
from tests.support import reference_etl

NO_CUTS = pl.DataFrame(schema={"code": pl.String, "unit": pl.String, **dict.fromkeys(CUTS, pl.Float64)})
ONE_ITEM = pl.DataFrame([["50912", "mg/dL", *map(float, range(1, 10))]], schema=NO_CUTS.schema, orient="row")

icd = st.text("A1", min_size=3, max_size=7).map(lambda code: f"DX:{code}")
atc = (
    st.sampled_from([1, 3, 4, 5, 7])
    .flatmap(lambda n: st.text("A1", min_size=n, max_size=n))
    .map("MED:{}".format)
)
procedure = st.text("0D", min_size=7, max_size=7).map(lambda code: f"PR:{code}")
TOKENS = st.lists(icd | atc | procedure, min_size=1, max_size=60)


def vocab_of(
    tokens: list[str], *, min_count: int, cuts: pl.DataFrame = NO_CUTS, subjects: list[int] | None = None
) -> pl.DataFrame:
    """Fit a vocabulary on tokens, each from another patient unless `subjects` is given."""
    subject_ids = pa.array(subjects or range(len(tokens)), pa.int64())
    items = dictionary([re.sub(r"_Q\d+$", "", token) for token in tokens])
    patients = patients_of(items, subject_ids, most=min_count)
    return fit_vocab(count_tokens(dictionary(tokens)), patients, cuts, min_count=min_count)


def dictionary(texts: list[str | None]) -> pa.DictionaryArray:
    return pa.array(texts, pa.string()).dictionary_encode()


PATIENTS_OF_TOKENS = st.lists(st.tuples(st.none() | st.sampled_from("abc"), st.integers(1, 9)), max_size=60)


@pytest.mark.parametrize("most_cells", [0, 1000], ids=["by pairs", "by marks"])
@given(rows=PATIENTS_OF_TOKENS, most=st.integers(1, 4))
def test_patients_of_keeps_at_most_the_limit_per_token(
    most_cells: int, rows: list[tuple[str | None, int]], most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.corpus.tokens._MOST_CELLS", most_cells)
        texts, subject_ids = (
            [text for text, _ in rows],
            pa.array([subject for _, subject in rows], pa.int64()),
        )
        patients = patients_of(dictionary(texts), subject_ids, most=most).rows()
    pairs = sorted({row for row in rows if row[0] is not None})
    assert sorted(patients) == [
        row for text in "abc" for row in [pair for pair in pairs if pair[0] == text][:most]
    ]


@given(icd | atc | procedure)
def test_parent_token_is_the_next_level_up(token):
    assert pl.select(parent_token(pl.lit(token))).item() == reference_etl.parent(token)


def test_parent_token_stops_at_the_category_and_the_anatomical_group():
    tokens = ["DX:I10", "MED:B", "PR:0DTJ4ZZ", "LAB:50912_Q3"]
    assert pl.select(parent_token(pl.Series(tokens))).to_series().to_list() == [None] * 4


@given(TOKENS, st.integers(1, 6))
def test_roll_up_loses_no_count(tokens, min_count):
    counts = pl.Series("token", tokens).value_counts()
    patients = patients_of(dictionary(tokens), pa.array(range(len(tokens)), pa.int64()), most=min_count)
    totals = roll_up(counts, patients, min_count=min_count)
    is_final = pl.col("is_common") | parent_token(pl.col("token")).is_null()
    assert totals.filter(is_final)["count"].sum() == len(tokens)
    assert totals["token"].is_duplicated().sum() == 0


def test_roll_up_adds_children_to_the_parent():
    rows = vocab_of(["DX:I2510"] * 2 + ["DX:I2511"] + ["DX:I251"] * 2 + ["DX:I259"], min_count=5)
    assert rows["token"].to_list() == [*SPECIALS, "DX:I251"]
    assert rows["count_train"].to_list()[-1] == 5


def test_code_of_two_patients_is_not_in_the_vocabulary():
    tokens, subjects = ["DX:I2510"] * 40 + ["DX:I10"] * 5, [1, 2] * 20 + [1, 2, 3, 4, 5]
    assert vocab_of(tokens, min_count=5, subjects=subjects)["token"].to_list() == [*SPECIALS, "DX:I10"]


def test_patient_with_two_rare_codes_counts_once_in_the_parent():
    tokens = ["DX:I2510", "DX:I2511", "DX:I2510", "DX:I2511"]
    assert vocab_of(tokens, min_count=3, subjects=[1, 1, 2, 2])["token"].to_list() == [*SPECIALS]
    vocab = vocab_of(tokens, min_count=3, subjects=[1, 1, 2, 3])
    assert vocab.select("token", "count_train").rows()[-1] == ("DX:I251", 4)


@given(TOKENS, st.lists(st.integers(0, 6), min_size=60, max_size=60), st.integers(1, 5), st.integers(1, 4))
def test_vocabulary_is_the_same_from_several_parts(tokens, subject_ids, min_count, parts):
    """Parts have disjoint subjects, as buckets do."""
    subject_ids = subject_ids[: len(tokens)]
    whole = vocab_of(tokens, min_count=min_count, subjects=subject_ids)
    patient_parts = []
    for part in range(parts):
        places = [k for k, subject in enumerate(subject_ids) if subject % parts == part]
        texts, ids = [tokens[k] for k in places], [subject_ids[k] for k in places]
        patient_parts.append(patients_of(dictionary(texts), pa.array(ids, pa.int64()), most=min_count))
    patients = cap_patients(pl.concat(patient_parts), most=min_count)
    from_parts = fit_vocab(count_tokens(dictionary(tokens)), patients, NO_CUTS, min_count=min_count)
    assert from_parts.equals(whole)


@given(TOKENS, st.integers(1, 6))
def test_frequent_codes_are_tokens_with_ids_without_gaps(tokens, min_count):
    rows = vocab_of(tokens, min_count=min_count)
    with_id = rows.drop_nulls("token_id")
    assert with_id["token_id"].to_list() == list(range(with_id.height))
    assert rows["token"].to_list()[: len(SPECIALS)] == list(SPECIALS)
    assert all(count >= min_count for count in with_id["count_train"].to_list()[len(SPECIALS) :])


@given(TOKENS, st.integers(1, 4), st.randoms())
def test_vocabulary_does_not_depend_on_the_order_of_events(tokens, min_count, chance):
    reordered_events = chance.sample(tokens, len(tokens))
    assert vocab_of(tokens, min_count=min_count).equals(vocab_of(reordered_events, min_count=min_count))


def test_laboratory_item_always_has_ten_rows_with_cuts():
    rows = vocab_of(["LAB:50912_Q2"] * 3, min_count=2, cuts=ONE_ITEM).filter(pl.col("kind") == "LAB")
    assert rows["token"].to_list() == [f"LAB:50912_Q{decile}" for decile in range(1, 11)]
    assert rows["low"].to_list() == [None, *map(float, range(1, 10))]
    assert rows["high"].to_list() == [*map(float, range(1, 10)), None]
    assert rows["token_id"].to_list() == [None, len(SPECIALS), *[None] * 8]
    assert cuts_of(rows).equals(ONE_ITEM.drop("unit"))


@given(TOKENS, TOKENS, st.integers(1, 4))
def test_unseen_code_backs_off_to_the_nearest_ancestor_or_unk(fitted_tokens, new, min_count):
    vocab = vocab_of(fitted_tokens, min_count=min_count)
    ids = dict(vocab.drop_nulls("token_id").select("token", "token_id").iter_rows())
    token_ids, used = encode(dictionary(new), vocab)
    expected = [
        next((ids[t] for t in (token, *reference_etl.ancestors(token)) if t in ids), UNK) for token in new
    ]
    assert token_ids.tolist() == expected
    rows = {(t, i, i != UNK and i != ids.get(t), new.count(t)) for t, i in zip(new, expected, strict=True)}
    assert set(used.select("token", "token_id", "backed_off", "count").iter_rows()) == rows


def test_nearest_token_is_null_without_ancestors_in_the_vocabulary():
    tokens = pl.DataFrame({"token": ["DX:I2510", "PR:0DTJ4ZZ"]})
    nearest = nearest_token(tokens, pl.DataFrame({"token": ["DX:I25"]}))
    assert dict(nearest.iter_rows()) == {"DX:I2510": "DX:I25", "PR:0DTJ4ZZ": None}


def token_texts(kind: str, rows: list[tuple], lookup: dict[str, str] | None = None) -> list[str | None]:
    """Return the tokens of rows (code, mapped, value, vocab)."""
    texts = {
        name: dictionary([row[at] for row in rows]) for at, name in ((0, "code"), (1, "mapped"), (3, "vocab"))
    }
    events = pa.table({**texts, "value": pa.array([row[2] for row in rows], pa.float64())})
    return write_tokens(kind, events, ONE_ITEM, lookup or {}).to_pylist()


def test_laboratory_item_without_cuts_or_value_gives_no_token():
    rows = [("50912", None, 1.5, "itemid"), ("1", None, 1.0, "itemid"), ("50912", None, None, "itemid")]
    assert token_texts("LAB", rows) == ["LAB:50912_Q2", None, None]


def test_code_that_looks_like_a_laboratory_item_stays_a_code():
    assert token_texts("DX", [("50912", "I10", None, "icd9cm"), ("50912", None, None, "icd9cm")]) == [
        "DX:I10",
        None,
    ]


def test_drug_token_uses_mapping_then_lookup_then_rxnorm():
    rows = [
        ("heparin", "B01AB01", None, "name"),
        ("heparin", None, None, "name"),
        ("heparin", None, None, "ndc"),
        ("5224", None, None, "rxnorm"),
        ("water", None, None, "name"),
    ]
    expected = ["MED:B01AB01", "MED:B01AX", None, "MED:RX5224", None]
    assert token_texts("MED", rows, {"heparin": "B01AX"}) == expected


@given(st.lists(icd | st.none(), max_size=30))
def test_count_tokens_counts_every_occurrence(texts):
    counts = dict(count_tokens(dictionary(texts)).iter_rows())
    assert counts == {text: texts.count(text) for text in texts if text is not None}


def test_vocabulary_hash_depends_on_content_alone(tmp_path):
    table = vocab_of(["DX:I10"] * 3, min_count=2, cuts=ONE_ITEM).to_arrow()
    pq.write_table(table, tmp_path / "plain.parquet", compression="none", row_group_size=2)
    assert content_sha256(pq.read_table(tmp_path / "plain.parquet")) == content_sha256(table)
    other_vocab = vocab_of(["DX:I10"] * 4, min_count=2, cuts=ONE_ITEM).to_arrow()
    assert content_sha256(other_vocab) != content_sha256(table)
