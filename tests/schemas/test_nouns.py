"""A count has its noun in the number that goes with it, withheld or not."""

import pytest

from schemas.nouns import with_capital, with_noun


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 patients"),
        (1, "1 patient"),
        ("1", "1 patient"),
        (1234, "1,234 patients"),
        ("< 11", "< 11 patients"),
        ("1,001", "1,001 patients"),
        ("withheld", "a withheld number of patients"),
    ],
)
def test_noun_is_in_the_plural_unless_the_count_is_one(count, words):
    assert with_noun(count, "patient") == words


def test_noun_may_have_a_plural_of_its_own():
    assert [with_noun(count, "class", "classes") for count in (1, 2)] == ["1 class", "2 classes"]


def test_a_sentence_begins_with_a_capital_and_keeps_its_abbreviations():
    assert [with_capital(words) for words in ("an ICD code", "11 patients", "")] == [
        "An ICD code",
        "11 patients",
        "",
    ]
