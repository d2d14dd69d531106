"""Tests of secrets in URLs, which are neither stored nor displayed."""

import pytest

from schemas.io.urls import holds_secret, redact_url


@pytest.mark.parametrize(
    ("url", "redacted_url"),
    [
        ("https://nurse:hunter2@host:81/a", "https://host:81/a"),
        ("https://token@host/a", "https://host/a"),
        ("https://host/a?token=hunter2", "https://host/a"),
        ("https://host/a#hunter2", "https://host/a"),
        ("https://[hunter2/a", "https://…"),
    ],
)
def test_redact_url_removes_user_and_query(url: str, redacted_url: str) -> None:
    assert holds_secret(url)
    assert redact_url(url) == redacted_url


@pytest.mark.parametrize(
    "value", ["s3://bucket/nest", "tcp://scheduler:8786", "a folder/with@sign?", "42", ""]
)
def test_redact_url_keeps_a_value_without_secrets(value: str) -> None:
    assert not holds_secret(value)
    assert redact_url(value) == value
