"""The paper's table on Instacart, as printed there, and what of it can be compared with a run here."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PaperRow:
    """One system of the paper's table, in percent."""

    title: str
    system: str  # its name here
    recall: float
    ndcg: float

    @property
    def ratio(self) -> float:
        """NDCG over recall, which differs by the denominator of NDCG."""
        return self.ndcg / self.recall


PAPER = (
    PaperRow("Sets2Sets", "sets2sets", 21.25, 19.23),
    PaperRow("TIFUKNN", "tifuknn", 34.97, 35.70),
    PaperRow("ReCANet", "recanet", 35.41, 36.01),
    PaperRow("BERT4Rec", "bert", 24.83, 30.42),
    PaperRow("NEST", "nest", 25.96, 35.95),
    PaperRow("BERT + ReCANet", "bert_recanet", 34.60, 42.74),
    PaperRow("NEST + ReCANet", "nest_recanet", 34.77, 43.01),
)

NOT_COMPARABLE = (
    "The paper's ratios of NDCG to recall fall into two groups, 0.90 to 1.02 and 1.23 to 1.38, as they would under "
    "different denominators of NDCG. That is a hypothesis; this page gives all three denominators, so that a reader "
    "can judge. The paper leaves open which users, filters and targets it used, and NEST's size for this data; its "
    "3.42 million orders include the 75,000 whose products were never published. No cell of it can be compared with "
    "one here unless the same users are run here."
)
