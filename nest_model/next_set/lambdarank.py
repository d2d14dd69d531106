"""LightGBM that ranks the user's own products and the most popular ones: the honest competitor of every network.

A query is a user and a label basket; its rows are the candidates, and what is learnt is which of them the basket holds.
Every feature and every statistic of a product is of baskets before the earliest label. LightGBM's own NDCG is not read:
it takes a query without a hit as 1 and sees no target outside the candidates. Our scorer decides when to stop.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nest_model.baselines.boosting import COMMON
from nest_model.data.seqsets import offsets_of
from nest_model.next_set.frequent import Everybody, fill, user_products
from nest_model.next_set.labels import label_blocks, label_questions, lowest_hashes
from nest_model.next_set.lambdarank_options import MOST_TREES, LightgbmOptions
from nest_model.next_set.metrics import score_rankings
from nest_model.next_set.personal import FEATURES, ProductStatistics, features
from nest_model.next_set.questions import Histories, LearningData, Questions
from nest_model.next_set.ranking import K, Ranking, TieOrder
from nest_model.next_set.system import Recommender
from nest_model.next_set.validation_users import evenly_spread
from nest_model.training.telemetry import Telemetry

if TYPE_CHECKING:
    import lightgbm as lgb

USERS_AT_A_TIME = 2_000
MOST_ROWS_OF_QUERY = 10_000
"""LightGBM refuses longer queries."""

TREES_BETWEEN_SCORES = 5
PATIENCE_TREES = 50


class CandidateProducts:
    """The products that are ranked for each user: those of the history and everybody's most frequent."""

    def __init__(self, statistics: ProductStatistics, explore: int) -> None:
        self.statistics = statistics
        self.order = TieOrder.by_popularity(statistics.popularity)
        popular = np.argsort(self.order.place)[:explore]
        self.popular = popular[statistics.popularity[popular] > 0]

    @classmethod
    def before_labels(cls, data: LearningData, options: LightgbmOptions) -> Self:
        """Return the candidates by what everybody bought before the earliest label."""
        earlier = data.training.first(data.training.lengths - options.label_positions)
        return cls(ProductStatistics.of(earlier), options.explore)

    def of(self, histories: Histories) -> tuple[np.ndarray, np.ndarray]:
        """Return user and item of each candidate, i64 [candidates], by user and by popularity.

        LightGBM takes equally scored rows in this order, so it must not depend on a product's id.
        """
        baskets, users = histories.baskets, len(histories)
        user, item, _ = user_products(baskets)
        keys = np.concatenate([user, np.repeat(np.arange(users), len(self.popular))]) * baskets.products
        keys = np.unique(keys + np.concatenate([item, np.tile(self.popular, users)]))
        user, item = np.divmod(keys, max(baskets.products, 1))
        in_order = np.lexsort((self.order.place[item], user))
        return user[in_order], item[in_order]


@dataclass(frozen=True)
class CandidateRows:
    """The candidates of some questions, their features and whether the answer holds them."""

    user: np.ndarray  # i64 [rows], ascending
    item: np.ndarray  # i64 [rows]
    features: np.ndarray  # f32 [rows, features]
    is_hit: np.ndarray  # bool [rows]

    @classmethod
    def of(cls, questions: Questions, candidates: CandidateProducts) -> "CandidateRows":
        """Return the rows of all questions."""
        histories = questions.histories
        product_id = histories.baskets.product_id
        user, item = candidates.of(histories)
        truth_user = np.repeat(np.arange(len(questions)), np.diff(questions.truth_offsets))
        place = np.minimum(np.searchsorted(product_id, questions.truth), max(len(product_id) - 1, 0))
        is_known = product_id[place] == questions.truth
        truth_keys = truth_user[is_known] * len(product_id) + place[is_known]
        is_hit = np.isin(user * len(product_id) + item, truth_keys)
        return cls(user, item, features(histories, user, item, candidates.statistics), is_hit)

    def fit_for_learning(self, *, is_ranked: bool) -> np.ndarray:
        """Return the places of the rows to learn from, i64: no query too long and, for a ranker, none without a hit."""
        queries = int(self.user[-1]) + 1 if len(self.user) else 0
        in_order = np.lexsort((~self.is_hit, self.user))  # hits first, then the popular
        starts = offsets_of(np.bincount(self.user, minlength=queries))[:-1]
        is_short = np.empty(len(self.user), dtype=bool)
        is_short[in_order] = np.arange(len(self.user)) - starts[self.user[in_order]] < MOST_ROWS_OF_QUERY
        has_hit = np.bincount(self.user, self.is_hit, minlength=queries) > 0
        return np.flatnonzero(is_short & (has_hit[self.user] | (not is_ranked)))


class LightgbmRecommender(Recommender):
    """The candidates by the score of the trees; the places left hold everybody's most frequent products."""

    def __init__(
        self, data: LearningData, candidates: CandidateProducts, booster: "lgb.Booster", trees: int
    ) -> None:
        self.everybody, self.candidates = Everybody(data), candidates
        self.booster, self.trees = booster.free_dataset(), trees
        self.nameable = data.training.product_id

    def rank(self, histories: Histories, k: int) -> Ranking:
        parts = []
        for block in histories.baskets.blocks(USERS_AT_A_TIME):
            part = histories.take(np.arange(block.start, block.stop))
            user, item = self.candidates.of(part)
            rows = features(part, user, item, self.candidates.statistics)
            scores = np.asarray(
                self.booster.predict(rows, num_iteration=self.trees, raw_score=True, num_threads=1)
            )
            ranking = self.everybody.order.rank_pairs(
                len(part), user, item, scores, part.baskets.product_id, k
            )
            parts.append(fill(ranking, self.everybody.rank(part, 2 * k)))
        return Ranking.joined(parts)


def fit(
    data: LearningData,
    validation: Questions | None,
    options: LightgbmOptions,
    seed: int,
    telemetry: Telemetry,
) -> Recommender:
    """Fit the trees to the labels of the training users; without a label to learn from, the most popular are listed."""
    candidates = CandidateProducts.before_labels(data, options)
    dataset = _training_set(data, candidates, options)
    if dataset is None:
        return Everybody(data)
    import lightgbm as lgb

    booster = lgb.Booster(_parameters(options, seed), dataset)
    if validation is None:
        progress = telemetry.progress("lightgbm", total=options.trees, unit="trees")
        for _ in range(options.trees):
            booster.update()
            progress.advance(1)
        return LightgbmRecommender(data, candidates, booster, options.trees)
    trees = _stopped(booster, dataset, data, validation, candidates, telemetry)
    return LightgbmRecommender(data, candidates, booster, trees)


def _parameters(options: LightgbmOptions, seed: int) -> dict[str, Any]:
    parameters = COMMON | {
        "objective": options.objective,
        "metric": "none",
        "num_leaves": options.leaves,
        "learning_rate": options.rate,
        "min_data_in_leaf": options.min_leaf,
        "feature_fraction": options.columns,
        "lambda_l2": options.l2,
        "seed": seed,
    }
    if options.objective == "lambdarank":
        parameters["lambdarank_truncation_level"] = options.truncation
    return parameters


def _training_set(
    data: LearningData, candidates: CandidateProducts, options: LightgbmOptions
) -> "lgb.Dataset | None":
    """Return the labelled rows binned, None where there are none or all labels are alike."""
    import lightgbm as lgb

    users = -(-options.queries // options.label_positions)
    sample = lowest_hashes(data, users)
    tables, hits, sizes = [], [], []
    for of_block, positions in label_blocks(sample.training, options.label_positions):
        questions = label_questions(sample, of_block, positions)
        rows = CandidateRows.of(questions, candidates)
        usable_rows = rows.fit_for_learning(is_ranked=options.objective != "binary")
        tables.append(rows.features[usable_rows])
        hits.append(rows.is_hit[usable_rows])
        counts = np.bincount(rows.user[usable_rows], minlength=len(questions))
        sizes.append(counts[counts > 0])
    is_hit = np.concatenate([np.empty(0, dtype=bool), *hits])
    if not is_hit.any() or is_hit.all():
        return None
    return lgb.Dataset(
        np.concatenate(tables),
        is_hit.astype(np.int8),
        group=None if options.objective == "binary" else np.concatenate(sizes),
        feature_name=list(FEATURES),
        params=COMMON,
    )


def _stopped(
    booster: "lgb.Booster",
    dataset: "lgb.Dataset",
    data: LearningData,
    validation: Questions,
    candidates: CandidateProducts,
    telemetry: Telemetry,
) -> int:
    """Grow trees until validation users no longer gain, and return how many are best."""
    import lightgbm as lgb

    questions = evenly_spread(validation)
    rows = CandidateRows.of(questions, candidates)
    order = TieOrder.by_popularity(data.popularity())
    product_id = data.training.product_id

    def ndcg(scores: np.ndarray, _: "lgb.Dataset") -> tuple[str, float, bool]:
        ranking = order.rank_pairs(len(questions), rows.user, rows.item, scores, product_id, K)
        return "ndcg", float(score_rankings(ranking, questions, K).values["ndcg"].mean()), True

    rows_to_score = lgb.Dataset(rows.features, rows.is_hit.astype(np.int8), reference=dataset, params=COMMON)
    booster.add_valid(rows_to_score, "validation")
    progress = telemetry.progress("lightgbm", total=MOST_TREES, unit="trees")
    best, trees = -1.0, 0
    for tree_count in range(TREES_BETWEEN_SCORES, MOST_TREES + 1, TREES_BETWEEN_SCORES):
        is_finished = [booster.update() for _ in range(TREES_BETWEEN_SCORES)][-1]
        value = booster.eval_valid(ndcg)[0][2]
        if value > best:
            best, trees = value, tree_count
        progress.advance(TREES_BETWEEN_SCORES)
        if is_finished or tree_count - trees >= PATIENCE_TREES:
            break
    return trees
