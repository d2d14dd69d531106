"""What docs/ shows is what the code says, word for word."""

from nest_model.benchmarks.closed_form import flop_per_token, parameters
from nest_model.benchmarks.models import MODELS
from nest_model.benchmarks.sizes import Sizes
from nest_model.benchmarks.tables import by_formula
from tests.runs import ROOT


def test_the_page_of_the_benchmarks_shows_the_paper_s_figures_by_formula():
    sizes = Sizes()
    figures = {
        name: {"flop_per_token": flop_per_token(name, sizes), "parameters": parameters(name, sizes)}
        for name in MODELS
    }
    assert by_formula(figures) in (ROOT / "docs" / "benchmarks.md").read_text()
