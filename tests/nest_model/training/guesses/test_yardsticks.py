"""Model-free guesses, compared with a naive computation by loops over the same masked batches."""

import dataclasses
import math
from collections import Counter, defaultdict
from functools import partial

import numpy as np
import pytest
import torch

from nest_model.config import ModelConfig
from nest_model.data.packed import pack, seed_of
from nest_model.data.selection import Selection, limit_context, whole_subjects
from nest_model.training.guesses.lists import SHARES as LIST_SHARES
from nest_model.training.guesses.mixture import SHARES
from nest_model.training.guesses.popularity import Popularity
from nest_model.training.guesses.yardsticks import MOST_FIT_PATIENTS, Mask, fit_patients, yardsticks
from nest_model.training.masking import mask_batch, mask_sets
from schemas.tables.vocab import SPECIALS, UNK
from tests.support.factories.shards import DAY_US, HOUR_US, read_rows, set_row

FIRST, VOCAB_SIZE = len(SPECIALS), len(SPECIALS) + 25
CONFIG = ModelConfig(VOCAB_SIZE, max_sets=4, max_set_rows=8)
TRAIN = 40  # training patients; the rest are for validation


@pytest.fixture(scope="module")
def seqsets(tmp_path_factory: pytest.TempPathFactory):
    """Return sixty patients with one to six sets and usual codes each; some sets are empty or [UNK] alone."""
    rng, rows = np.random.default_rng(3), []
    for subject in range(1, 61):
        usual = rng.integers(FIRST, VOCAB_SIZE, size=4)
        for index in range(int(rng.integers(1, 7))):
            start = index * 30 * DAY_US
            tokens = [
                *rng.choice(usual, size=rng.integers(0, 7)),
                *rng.integers(FIRST, VOCAB_SIZE, size=rng.integers(0, 5)),
            ]
            tokens = [UNK] * 2 if rng.random() < 0.1 else tokens
            events = [
                (int(token), 3, start + i * HOUR_US, start + i * HOUR_US) for i, token in enumerate(tokens)
            ]
            rows.append(set_row(subject, index, 10 * subject + index, start, events))
    return read_rows(tmp_path_factory.mktemp("shards"), rows)


def selection(seqsets, patients: range) -> Selection:
    limits = {"max_sets": CONFIG.max_sets, "max_set_rows": CONFIG.max_set_rows}
    return limit_context(whole_subjects(seqsets, np.array(patients)), **limits)[0]


def masked_batches(seqsets, patients: range, mask, config: ModelConfig = CONFIG):
    patients_selection = selection(seqsets, patients)
    for first in range(0, len(patients_selection), 7):
        examples = np.arange(first, min(first + 7, len(patients_selection)))
        batch = pack(seqsets, patients_selection.take(examples), config)
        yield mask(batch, torch.Generator().manual_seed(seed_of(5, first)))


def masks(config: ModelConfig = CONFIG) -> dict[str, Mask]:
    return {"corrupt": partial(mask_batch, config=config), "hide_sets": partial(mask_sets, config=config)}


@pytest.fixture(scope="module")
def guesses(seqsets):
    popularity = Popularity.of(seqsets, selection(seqsets, range(TRAIN)), VOCAB_SIZE)
    return yardsticks(
        popularity,
        lambda mask: masked_batches(seqsets, range(TRAIN), mask),
        lambda mask: masked_batches(seqsets, range(TRAIN, seqsets.subjects), mask),
        **masks(),
    )


class Naive:
    """The guesses by loops and dictionaries, from the definitions in the docs."""

    def __init__(self, seqsets) -> None:
        self.seqsets = seqsets
        sets = []
        for patient in range(TRAIN):
            first, end = seqsets.subject_offsets[patient : patient + 2]
            for number in list(range(first, end))[-CONFIG.max_sets :]:
                start, stop = seqsets.event_offsets[number : number + 2]
                tokens = seqsets.tokens[start:stop].tolist()[: CONFIG.max_set_rows - 1]
                sets.append([token for token in tokens if token >= FIRST])
        self.sets = [tokens for tokens in sets if tokens]
        self.counts = Counter(token for tokens in self.sets for token in tokens)
        self.holders = Counter(token for tokens in self.sets for token in set(tokens))

    def unigram(self, token: int) -> float:
        size = VOCAB_SIZE - FIRST
        return (self.counts[token] + 0.5) / (sum(self.counts.values()) + size / 2)

    def mean_set(self, token: int) -> float:
        size, number = VOCAB_SIZE - FIRST, len(self.sets)
        half = number / (2 * sum(self.counts.values()))
        return (sum(tokens.count(token) / len(tokens) for tokens in self.sets) + half) / (
            number + size * half
        )

    def patients(self, patients: range, mask):
        """Yield each patient's visible sets, masked tokens and masked sets."""
        for masked_batch in masked_batches(self.seqsets, patients, mask):
            batch = masked_batch.batch
            target_of_row = dict(
                zip(masked_batch.mlm_rows.tolist(), masked_batch.mlm_targets.tolist(), strict=True)
            )
            targets = defaultdict(dict)
            for place, token, share in zip(
                masked_batch.masked_sets.set_of_token.tolist(),
                masked_batch.masked_sets.tokens.tolist(),
                masked_batch.masked_sets.shares.tolist(),
                strict=True,
            ):
                targets[int(masked_batch.masked_sets.sets[place])][token] = share
            for patient in range(batch.subjects):
                visible, tokens, sets = [], [], []
                for number in range(*batch.subject_offsets[patient : patient + 2].tolist()):
                    rows = range(*batch.set_offsets[number : number + 2].tolist())
                    visible_tokens = [int(batch.tokens[row]) for row in rows if batch.tokens[row] >= FIRST]
                    visible += [visible_tokens] if visible_tokens else []
                    tokens += [target_of_row[row] for row in rows if row in target_of_row]
                    sets += [targets[number]] if number in targets else []
                yield visible, tokens, sets

    def mlm(self, patients: range, share: float) -> float:
        losses = []
        for visible, tokens, _ in self.patients(patients, masks()["corrupt"]):
            pool = [token for tokens in visible for token in tokens]
            for token in tokens:
                history_share = pool.count(token) / len(pool) if pool else self.unigram(token)
                losses.append(-math.log((1 - share) * self.unigram(token) + share * history_share))
        return sum(losses) / len(losses)

    def msm(self, patients: range, share: float) -> float:
        losses = []
        for visible, _, sets in self.patients(patients, masks()["corrupt"]):
            for target in sets:
                loss = 0.0
                for token, part in target.items():
                    history_shares = [tokens.count(token) / len(tokens) for tokens in visible]
                    mean = (
                        sum(history_shares) / len(history_shares) if history_shares else self.mean_set(token)
                    )
                    loss += part * math.log(part / ((1 - share) * self.mean_set(token) + share * mean))
                losses.append(loss)
        return sum(losses) / len(losses)

    def lists(self, patients: range, score) -> tuple[float, float]:
        """Return mean Recall@10 and NDCG@10 of the ten best by `score(token, visible)`, ties to the lower token."""
        recalls, ndcgs = [], []
        for visible, _, sets in self.patients(patients, masks()["hide_sets"]):
            best = sorted(range(FIRST, VOCAB_SIZE), key=lambda token, sets=visible: score(token, sets))[:10]
            for target in sets:
                hits = [token in target for token in best]
                recalls.append(sum(hits) / len(target))
                ideal = sum(1 / math.log2(place + 2) for place in range(min(10, len(target))))
                ndcgs.append(sum(hit / math.log2(place + 2) for place, hit in enumerate(hits)) / ideal)
        return sum(recalls) / len(recalls), sum(ndcgs) / len(ndcgs)

    def mixed(self, share: float):
        def score(token: int, visible: list[list[int]]) -> tuple[float, float, int]:
            constant = self.holders[token] / len(self.sets)
            history_share = sum(token in tokens for tokens in visible) / len(visible) if visible else constant
            return -((1 - share) * constant + share * history_share), -constant, token

        return score


@pytest.fixture(scope="module")
def naive(seqsets) -> Naive:
    return Naive(seqsets)


@pytest.fixture(scope="module")
def val(seqsets) -> range:
    return range(TRAIN, seqsets.subjects)


@pytest.mark.parametrize("name", ["mlm", "msm"])
def test_guess_losses_equal_the_naive_computation(guesses, naive, val, name):
    loss, of = getattr(naive, name), guesses[f"val_{name}"]
    assert of["constant"] == pytest.approx(loss(val, 0.0), abs=1e-9)
    assert of["mixture"] == pytest.approx(loss(val, of["own_share"]), abs=1e-9)
    assert of["own_share"] > 0
    assert of["mixture"] < of["constant"]


@pytest.mark.parametrize("name", ["mlm", "msm"])
def test_the_own_share_is_best_on_training_patients(guesses, naive, name):
    loss, share = getattr(naive, name), guesses[f"val_{name}"]["own_share"]
    candidates = [share - 0.01, share, share + 0.01]
    assert min(candidates, key=lambda candidate: loss(range(TRAIN), candidate)) == share
    assert share in SHARES


def test_list_scores_equal_the_naive_computation(guesses, naive, val):
    scores_by_guess = {
        "constant": lambda token, _: (-naive.holders[token], token),
        "constant_by_tokens": lambda token, _: (-naive.counts[token], token),
        "mixture": naive.mixed(guesses["val_ndcg_at_10"]["own_share"]),
    }
    for name, score in scores_by_guess.items():
        recall, ndcg = naive.lists(val, score)
        assert guesses["val_recall_at_10"][name] == pytest.approx(recall, abs=1e-9), name
        assert guesses["val_ndcg_at_10"][name] == pytest.approx(ndcg, abs=1e-9), name
    assert guesses["val_ndcg_at_10"]["mixture"] > guesses["val_ndcg_at_10"]["constant"]


def test_the_own_share_of_lists_is_best_on_training_patients(guesses, naive):
    share = guesses["val_ndcg_at_10"]["own_share"]
    scores = {
        candidate: naive.lists(range(TRAIN), naive.mixed(candidate))[1] for candidate in LIST_SHARES.tolist()
    }
    assert scores[share] == pytest.approx(max(scores.values()), abs=1e-12)
    assert share > 0


def test_a_constant_guess_sums_to_one_and_is_never_zero(seqsets):
    popularity = Popularity.of(seqsets, selection(seqsets, range(TRAIN)), VOCAB_SIZE + 3)
    for guess in (popularity.unigram, popularity.mean_set):
        assert guess.sum() == pytest.approx(1)
        assert guess[FIRST:].min() > 0
        assert not guess[:FIRST].any()


def test_yardsticks_omit_objectives_without_masks(seqsets):
    def names(**shares: float) -> set[str]:
        patients, config = range(TRAIN), dataclasses.replace(CONFIG, **shares)
        popularity = Popularity.of(seqsets, selection(seqsets, patients), VOCAB_SIZE)
        mask_patients = partial(masked_batches, seqsets, patients, config=config)
        return set(yardsticks(popularity, mask_patients, mask_patients, **masks(config)))

    lists = {"val_recall_at_10", "val_ndcg_at_10"}
    assert names(set_mask_share=0.0) == {"val_mlm"}
    assert names(token_mask_share=0.0) == {"val_msm", *lists}
    assert names(msm_weight=0.0) == {"val_mlm", *lists}, "lists do not depend on the objectives"
    assert names(set_mask_share=1.0) == {"val_msm", *lists}


def test_the_mixture_is_the_constant_when_nothing_is_visible(seqsets):
    patients, config = range(TRAIN), dataclasses.replace(CONFIG, set_mask_share=1.0)
    popularity = Popularity.of(seqsets, selection(seqsets, patients), VOCAB_SIZE)
    mask_patients = partial(masked_batches, seqsets, patients, config=config)
    for name, of in yardsticks(popularity, mask_patients, mask_patients, **masks(config)).items():
        assert of["mixture"] == pytest.approx(of["constant"], abs=1e-12), name


def test_fit_patients_draws_a_reproducible_sample():
    assert fit_patients(30, 1).tolist() == list(range(30))
    sample = fit_patients(3 * MOST_FIT_PATIENTS, 1)
    assert len(set(sample.tolist())) == MOST_FIT_PATIENTS
    assert sample.tolist() == sorted(sample.tolist()) == fit_patients(3 * MOST_FIT_PATIENTS, 1).tolist()
    assert sample.max() > 2 * MOST_FIT_PATIENTS
