"""docs/settings.md says what `Settings` says."""

import pytest

from schemas.settings import Settings
from schemas.settings_page import TOPICS, page
from tests.support.commands import ROOT

pytestmark = pytest.mark.docs


def test_committed_settings_page_equals_generated_one() -> None:
    assert (ROOT / "docs" / "settings.md").read_text() == page(), (
        "run `python -m schemas.settings_page > docs/settings.md`"
    )


def test_settings_page_shows_every_field_once() -> None:
    fields = [name for topic in TOPICS for name in topic.fields]
    assert sorted(fields) == sorted(Settings.model_fields)


@pytest.mark.parametrize("name", Settings.model_fields)
def test_setting_has_a_description_that_is_a_sentence(name: str) -> None:
    description = Settings.model_fields[name].description or ""
    assert description[:1].isupper()
    assert description.endswith((".", ")."))
    assert "|" not in description
