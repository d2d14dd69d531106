"""Every command in the docs parses, and every flag has a help text."""

import re
import shlex

import pytest
from torch.distributed.run import get_args_parser

from nest_model.commands.parser import parser
from tests.support.commands import ROOT

PAGES = ["README.md", *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md")))]
BLOCK = re.compile(r"```bash\n(.*?)```", re.DOTALL)


def commands(page: str) -> list[list[str]]:
    """Return a page's command lines that run `nest_model`, joined and without comments."""
    lines = "\n".join(BLOCK.findall((ROOT / page).read_text())).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if "-m nest_model " in line]


@pytest.mark.docs
@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_every_command_in_the_docs_parses(page):
    for command in commands(page):
        program, *launch = command[: command.index("nest_model") - 1]
        if program.endswith("torchrun"):
            launcher_options = get_args_parser().parse_args([*launch, "-m", "nest_model"])
            assert launcher_options.module
        options = command[command.index("nest_model") + 1 :]
        if options != ["--help"]:
            assert parser().parse_args(options).run


@pytest.mark.docs
def test_training_docs_show_both_strategies_and_several_machines():
    command_lines = [" ".join(command) for command in commands("docs/training.md")]
    assert any("torchrun --standalone" in command for command in command_lines)
    assert any("--strategy fsdp" in command for command in command_lines)
    assert any("--nnodes 2" in command for command in command_lines)


def test_every_flag_has_a_help_text():
    (subparsers,) = (action for action in parser()._actions if action.choices)
    flags = [(name, action) for name, command in subparsers.choices.items() for action in command._actions]
    assert len(flags) > 50
    assert [(name, *action.option_strings) for name, action in flags if not action.help] == []


REPORT = ("report", "--root=data/mimic", "--cohorts=a,b", "--out=out", "--preset=default")


def test_report_takes_thresholds_by_cohort():
    options = parser().parse_args([*REPORT, '--thresholds={"a": [0.1, 0.25]}'])
    assert options.thresholds == {"a": (0.1, 0.25)}


@pytest.mark.parametrize("text", ["0.1", "[0.1]", '{"a": 0.1}', '{"a": []}', '{"a": [20]}', '{"a"'])
def test_report_refuses_thresholds_that_are_no_probabilities_by_cohort(text, capsys):
    with pytest.raises(SystemExit):
        parser().parse_args([*REPORT, f"--thresholds={text}"])
    assert "probabilities" in capsys.readouterr().err
