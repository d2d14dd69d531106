"""The sources that installed packages add by entry points."""

from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

from schemas import sources as registry
from schemas.errors import NestError


@pytest.fixture(autouse=True)
def fresh_registry() -> Iterator[None]:
    registry.sources.cache_clear()
    yield
    registry.sources.cache_clear()


def sources_with(monkeypatch: pytest.MonkeyPatch, value: object) -> list[str]:
    """Return the names of all sources where one package's entry point loads `value`."""
    module = SimpleNamespace(SPEC=value)
    monkeypatch.setattr("importlib.metadata.import_module", lambda _: module)
    point = EntryPoint(name="shop", value="corner_shop.spec:SPEC", group=registry.ENTRY_POINTS)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    return list(registry.sources())


def test_source_of_a_package_comes_after_the_four(monkeypatch):
    spec = replace(registry.INSTACART, name="shop2")
    assert sources_with(monkeypatch, spec) == ["mimic", "meds", "pcornet", "instacart", "shop2"]


def test_entry_point_without_a_specification_is_refused(monkeypatch):
    with pytest.raises(NestError, match=r"the entry point nest\.sources does not name a SourceSpec"):
        sources_with(monkeypatch, "shop")


@pytest.mark.parametrize("name", ["mimic_icu", "My shop", "2shop", "downloads", ""])
def test_name_that_cannot_be_one_is_refused(name, monkeypatch):
    with pytest.raises(NestError, match="cannot name a source"):
        sources_with(monkeypatch, replace(registry.INSTACART, name=name))


def test_unknown_kind_of_events_is_refused(monkeypatch):
    with pytest.raises(NestError, match="XRAY: no kind of events; kinds are DX, PR, MED"):
        sources_with(monkeypatch, replace(registry.INSTACART, name="shop", kinds=("ITEM", "XRAY")))


def test_taken_name_is_refused(monkeypatch):
    with pytest.raises(NestError, match="there is a source 'mimic' already"):
        sources_with(monkeypatch, replace(registry.INSTACART, name="mimic"))
