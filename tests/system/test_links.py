"""Every link and path in the documents leads to an existing file and heading."""

import re
from pathlib import Path

import pytest
import yaml

from tests.support.commands import ROOT

pytestmark = pytest.mark.docs

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
ROOMS = ("assets", "benchmarks", "nest_model", "pipelines", "schemas", "tests", "docs")
MADE = {"assets/cohorts/my_cohort.yaml", "assets/cohorts/aom.yaml", "docs/benchmarks.<"}
"""Files a page speaks of that the reader makes."""


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of the headings: lower case, no punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def each_page(pages: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", pages, ids=lambda page: page.relative_to(ROOT).as_posix())


@each_page(PAGES)
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    dead_links = []
    text = page.read_text()
    links = re.findall(r"\]\((?!https?://|mailto:)([^)\s]+)\)", text) + re.findall(
        r'<img src="([^"]+)"', text
    )
    for link in links:
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead_links.append(link)
    assert not dead_links


@each_page(PAGES)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    """A path starts with a room; in one paragraph or row `folder/file.py`, `other.py` names a file beside the first."""
    missing = []
    for passage in re.split(r"\n\n|\n(?=\|)", page.read_text()):
        folder = ROOT
        for name in re.findall(r"`([\w./{},*-]+)`", passage):
            if name.split("/")[0] in ROOMS and "/" in name:
                if name not in MADE and not any(ROOT.glob(name)) and not braces_exist(name):
                    missing.append(name)
                folder = ROOT / name if name.endswith("/") else (ROOT / name).parent
            elif name.endswith(".py") and "/" not in name and not (folder / name).exists():
                missing.append(f"{folder.relative_to(ROOT)}/{name}")
    assert not missing


@each_page(PAGES)
def test_every_table_of_a_page_has_a_head(page: Path) -> None:
    lines = page.read_text().splitlines()
    rules = [number for number, line in enumerate(lines) if re.fullmatch(r"\|[-:| ]+\|", line)]
    assert [lines[number] for number in rules if not lines[number - 1].startswith("|")] == []


def braces_exist(name: str) -> bool:
    """Return whether a name with one {a,b} stands for paths that exist, all of them."""
    braces = re.fullmatch(r"(.*)\{(.*)\}(.*)", name)
    return bool(braces) and all(
        (ROOT / f"{braces[1]}{word}{braces[3]}").exists() for word in braces[2].split(",")
    )


@each_page(PAGES)
def test_every_module_that_a_page_runs_exists(page: Path) -> None:
    pattern = r"python -m ((?:assets|benchmarks|nest_model|pipelines|schemas|tests)(?:\.\w+)*)(?!\.…)\b"
    missing = []
    for name in set(re.findall(pattern, page.read_text())):
        place = ROOT / name.replace(".", "/")
        if not place.with_suffix(".py").exists() and not (place / "__main__.py").exists():
            missing.append(name)
    assert not missing


def test_site_shows_every_page() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    navigation = yaml.safe_load(text[text.index("\nnav:") :])["nav"]
    pages_on_site = {
        page for section in navigation for pages in section.values() for one in pages for page in one.values()
    }
    pages = {
        path.relative_to(ROOT / "docs").as_posix() for path in PAGES if path.is_relative_to(ROOT / "docs")
    }
    assert {page for page in pages if not page.startswith("benchmarks/")} == pages_on_site
